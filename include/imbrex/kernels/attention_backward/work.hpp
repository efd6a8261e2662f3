// The work of a block in the backward pass: a block of keys of one KV head, and for each query head of that KV head the
// blocks of queries that see any of these keys. A mask may name them:
//
//     // The queries that see any of these keys. May be too large.
//     IMBREX_FN query_range visible_queries(const attention_extents&, key_range) const;
//
// Otherwise they are searched by visible_keys.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>

namespace imbrex {

struct attention_key_block {
    attention_extents sequence;  // with the first query head
    key_range keys;              // of all blocks of the cluster; may reach over the end of the sequence
    int kv_head;
    int rank = 0;  // of the block in its cluster
};

// The order of key blocks. KV heads are grouped into sections whose Q, dO and dQ fit L2 together (L2 swizzle). In a
// section, the first blocks of all its heads come first: under a causal mask the most queries see them (LPT).
//
// Varlen: the blocks of a sequence follow one another, and all heads of a block, too.
struct attention_key_block_scheduler {
    int batches;
    int kv_heads;
    int blocks;         // key blocks of a head; of all sequences for varlen
    int section_heads;  // KV heads of a section

    template <class Lengths>
    IMBREX_FN int total(const Lengths& lengths) const {
        return (lengths.varlen() ? 1 : batches) * kv_heads * blocks;
    }

    template <class Lengths>
    IMBREX_KERNEL attention_key_block at(int number, int block_n, int q_heads_per_kv_head,
                                         const Lengths& lengths) const {
        int batch, kv_head, block;
        if (lengths.varlen()) {
            const Lengths by_keys{lengths.seqlen_k, lengths.seqlen_q, nullptr, lengths.cu_seqlens_k,
                                  lengths.cu_seqlens_q};
            const attention_tile_scheduler by_sequence{batches, kv_heads, blocks, 0};
            const attention_tile_scheduler::tile_coord found = by_sequence.at(number, by_keys, block_n);
            batch = found.batch;
            kv_head = found.head;
            const int rows = lengths.length_at(lengths.cu_seqlens_k, batch), count = (rows + block_n - 1) / block_n;
            block = found.block < count ? count - 1 - found.block : found.block;  // the first block first
        } else {
            const int section = number / (section_heads * blocks);
            const int first_head = section * section_heads, rest = batches * kv_heads - first_head;
            const int heads_here = rest < section_heads ? rest : section_heads;
            const int inside = number - first_head * blocks;
            block = inside / heads_here;
            const int head = first_head + inside - block * heads_here;
            batch = head / kv_heads;
            kv_head = head - batch * kv_heads;
        }
        return {
            lengths.of(batch, kv_head * q_heads_per_kv_head), {block * block_n, block * block_n + block_n}, kv_head};
    }
};

// Half-open range of blocks of queries.
struct query_block_range {
    int first;
    int end;
};

template <int BlockM, class Mask>
IMBREX_KERNEL query_block_range visible_query_blocks(const attention_extents& s, key_range keys, const Mask& mask) {
    const int blocks = (s.seqlen_q + BlockM - 1) / BlockM;
    keys.end = keys.end < s.seqlen_k ? keys.end : s.seqlen_k;
    if (keys.first >= keys.end) return {0, 0};
    if constexpr (requires { mask.visible_queries(s, keys); }) {
        const query_range seen = mask.visible_queries(s, keys);
        const int first = seen.first > 0 ? seen.first / BlockM : 0;
        const int end = seen.end < s.seqlen_q ? (seen.end + BlockM - 1) / BlockM : blocks;
        return {first, end > first ? end : first};
    } else {
        const auto sees = [&](int block) {
            const int first = block * BlockM;
            const key_range seen =
                mask.visible_keys(s, {first, first + BlockM < s.seqlen_q ? first + BlockM : s.seqlen_q});
            return (seen.first < keys.end) & (seen.end > keys.first);
        };
        int first = 0, end = blocks;
        while (first < end && !sees(first)) ++first;
        while (end > first && !sees(end - 1)) --end;
        return {first, end};
    }
}

// The query blocks of a key block, in the order in which all roles visit them: head by head; `Backwards` from the last
// to the first.
template <int BlockM, class Mask, bool Backwards = false>
class query_block_cursor {
  public:
    IMBREX_KERNEL query_block_cursor(const attention_key_block& work, int heads, const Mask& mask)
        : keys_(work.keys), mask_(&mask), sequence_(work.sequence), heads_left_(heads) {
        begin_head();
    }
    IMBREX_KERNEL bool done() const { return heads_left_ == 0; }
    IMBREX_KERNEL const attention_extents& sequence() const { return sequence_; }
    IMBREX_KERNEL int block() const { return Backwards ? range_.end - 1 : range_.first; }
    IMBREX_KERNEL void advance() {
        Backwards ? --range_.end : ++range_.first;
        if (range_.first < range_.end) return;
        ++sequence_.head;
        --heads_left_;
        begin_head();
    }

  private:
    // Skips heads that do not see the keys.
    IMBREX_KERNEL void begin_head() {
        for (; heads_left_ > 0; ++sequence_.head, --heads_left_) {
            range_ = visible_query_blocks<BlockM>(sequence_, keys_, *mask_);
            if (range_.first < range_.end) return;
        }
    }

    key_range keys_;
    const Mask* mask_;
    attention_extents sequence_;
    int heads_left_;
    query_block_range range_ = {0, 0};
};

}  // namespace imbrex
