// Which part of an attention a block works on next, and how long its sequences are.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>

namespace imbrex {

// How many queries and keys there are: the same for the whole batch; of a padded batch, where each member has a number of keys
// of its own; or of sequences packed one behind the other, where each begins at its number in `starts`, and the next begins
// where it ends.
struct attention_seqlens {
    int seqlen_q;
    int seqlen_k;
    const int* seqused_k = nullptr;
    const int* cu_seqlens_q = nullptr;
    const int* cu_seqlens_k = nullptr;

    IMBREX_FN bool varlen() const { return cu_seqlens_q != nullptr; }
    // Whether there may be something behind a sequence's last key.
    IMBREX_FN bool keys_end_early() const { return varlen() || seqused_k != nullptr; }
    IMBREX_FN attention_extents of(int batch, int head) const {
        if (varlen()) {
            return {batch, head, cu_seqlens_q[batch + 1] - cu_seqlens_q[batch],
                    cu_seqlens_k[batch + 1] - cu_seqlens_k[batch]};
        }
        return {batch, head, seqlen_q, seqused_k == nullptr ? seqlen_k : seqused_k[batch]};
    }
    // Row of the tensors where a sequence begins.
    IMBREX_FN int first_query(int batch) const { return varlen() ? cu_seqlens_q[batch] : 0; }
    IMBREX_FN int first_key(int batch) const { return varlen() ? cu_seqlens_k[batch] : 0; }
    // And which member of the tensors' batch it is in.
    IMBREX_FN int member(int batch) const { return varlen() ? 0 : batch; }
};

// Blocks of queries of all heads of a batch, in the order in which they are worked on.
//
// Where all take the same time, those of one head follow one another, and find its keys in L2. Where later queries see more
// keys, heads are taken in sections whose keys fit L2 together, and in a section those blocks of all its heads follow one
// another that take the same time: in the last section the longest first, so that no multiprocessor is left alone with a
// long one at the end, in the one before the shortest first, and so on. Then blocks dealt out in turn come out even, too.
//
//     2 sections of 2 heads, 3 blocks each:     head 0   0  2  4      head 2  10  8  6
//                                               head 1   1  3  5      head 3  11  9  7
//
// Of packed sequences each has the blocks that it needs, longest first, and all heads follow one another.
struct attention_tile_scheduler {
    int batches;
    int heads;
    int blocks;       // of queries: in a head, or in all sequences if they are packed
    int l2_sections;  // of heads; 0: one head after the other

    struct tile_coord {
        int batch;
        int head;
        int block;
    };

    // Sequences that begin anywhere among `rows` packed ones have at most so many blocks together.
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
        const int together = all * (section + 1) / l2_sections - first;
        const int inside = number - first * blocks;
        const int head = first + inside % together;
        const int step = inside / together;
        return {head / heads, head % heads, (l2_sections - section) % 2 == 1 ? blocks - 1 - step : step};
    }

  private:
    // A sequence's blocks are numbered from where it begins, in blocks, plus one for each sequence before it: that is room
    // enough for all, and needs no sum over their lengths. Numbers without a block give one behind the last.
    IMBREX_FN tile_coord varlen_at(int number, int head, const attention_seqlens& lengths, int block_m) const {
        int batch = 0;
        for (int end = batches; end - batch > 1;) {
            const int middle = batch + (end - batch) / 2;
            (lengths.cu_seqlens_q[middle] / block_m + middle <= number ? batch : end) = middle;
        }
        const int inside = number - (lengths.cu_seqlens_q[batch] / block_m + batch);
        const int length = lengths.cu_seqlens_q[batch + 1] - lengths.cu_seqlens_q[batch];
        const int count = (length + block_m - 1) / block_m;
        return {batch, head, inside < count ? count - 1 - inside : inside};
    }
};

}  // namespace imbrex
