// The tile scheduler of the attention kernels maps a tile index to a query block of a head (L2 swizzle, LPT). Also
// here: the sequence lengths of each batch entry.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/ops/memory/read_element.hpp>

namespace imbrex {

// Sequence lengths: the same for the whole batch; a padded batch with seqused_k keys for each entry; or varlen, where
// sequence i begins at row cu_seqlens[i] and ends at cu_seqlens[i + 1].
struct attention_seqlens {
    int seqlen_q;
    int seqlen_k;
    const int* seqused_k = nullptr;
    const int* cu_seqlens_q = nullptr;
    const int* cu_seqlens_k = nullptr;

    IMBREX_FN bool varlen() const { return cu_seqlens_q != nullptr; }
    // Whether there may be other data behind a sequence's last key.
    IMBREX_FN bool keys_end_early() const { return varlen() || seqused_k != nullptr; }
    IMBREX_FN attention_extents of(int batch, int head) const {
        if (varlen()) {
            return {batch, head, length_at(cu_seqlens_q, batch), length_at(cu_seqlens_k, batch)};
        }
        return {batch, head, seqlen_q, seqused_k == nullptr ? seqlen_k : read_element(seqused_k, batch)};
    }
    // The row of the tensors at which a sequence begins.
    IMBREX_FN int first_query(int batch) const { return varlen() ? read_element(cu_seqlens_q, batch) : 0; }
    IMBREX_FN int first_key(int batch) const { return varlen() ? read_element(cu_seqlens_k, batch) : 0; }
    // The batch index of the tensors.
    IMBREX_FN int member(int batch) const { return varlen() ? 0 : batch; }
    // The length of a sequence of varlen.
    static IMBREX_FN int length_at(const int* cu_seqlens, int batch) {
        return read_element(cu_seqlens, batch + 1) - read_element(cu_seqlens, batch);
    }
};

// The order of query blocks.
//
// Where all blocks cost the same, those of one head follow one another and find its K and V in L2. Where later queries
// see more keys (causal), heads are grouped into sections whose K and V fit L2 together (L2 swizzle). Inside a section,
// blocks of equal cost of all its heads follow one another. The last section runs the longest blocks first (LPT), so
// that no SM is left alone with a long one at the end; the section before it runs the shortest first, and so on.
// Round-robin assignment is then balanced, too.
//
//     2 sections of 2 heads, 3 blocks each:     head 0   0  2  4      head 2  10  8  6
//                                               head 1   1  3  5      head 3  11  9  7
//
// Varlen: each sequence has the blocks that it needs, longest first, and all heads of a block follow one another.
struct attention_tile_scheduler {
    int batches;
    int heads;
    int blocks;       // query blocks of a head; of all sequences for varlen
    int l2_sections;  // sections of heads; 0: one head after the other

    struct tile_coord {
        int batch;
        int head;
        int block;
    };

    // An upper bound on the number of blocks of varlen sequences with `rows` rows in total.
    static constexpr IMBREX_FN int varlen_blocks(int rows, int sequences, int block_m) {
        return rows / block_m + sequences;
    }

    IMBREX_FN int total(const attention_seqlens& lengths) const {
        return (lengths.varlen() ? 1 : batches) * heads * blocks;
    }

    IMBREX_FN tile_coord at(int number, const attention_seqlens& lengths, int block_m) const {
        if (lengths.varlen()) return varlen_at(number / heads, number % heads, lengths, block_m);
        if (l2_sections == 0) {
            const int head = number / blocks;
            return {head / heads, head % heads, number - head * blocks};
        }
        const int all = batches * heads;
        const int section = ((number / blocks + 1) * l2_sections - 1) / all;
        const int first = all * section / l2_sections;
        const int section_heads = all * (section + 1) / l2_sections - first;
        const int inside = number - first * blocks;
        const int head = first + inside % section_heads;
        const int step = inside / section_heads;
        return {head / heads, head % heads, (l2_sections - section) % 2 == 1 ? blocks - 1 - step : step};
    }

  private:
    // Sequence i has the block indices from cu_seqlens_q[i] / block_m + i on. That leaves enough indices for every
    // sequence and needs no prefix sum. An unused index gives a block behind the last.
    IMBREX_FN tile_coord varlen_at(int number, int head, const attention_seqlens& lengths, int block_m) const {
        int batch = 0;
        for (int end = batches; end - batch > 1;) {
            const int middle = batch + (end - batch) / 2;
            (read_element(lengths.cu_seqlens_q, middle) / block_m + middle <= number ? batch : end) = middle;
        }
        const int inside = number - (read_element(lengths.cu_seqlens_q, batch) / block_m + batch);
        const int length = lengths.length_at(lengths.cu_seqlens_q, batch);
        const int count = (length + block_m - 1) / block_m;
        return {batch, head, inside < count ? count - 1 - inside : inside};
    }
};

}  // namespace imbrex
