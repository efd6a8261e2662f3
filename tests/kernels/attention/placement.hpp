// A test case of attention, and the placement of its tensors and sequences.
#pragma once

#include <imbrex/kernels/attention/views.hpp>

#include "kernels/attention/kinds.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace imbrex_test {

using imbrex::attention_view;

enum class layout { batch_sequence_head, batch_head_sequence, one_tensor, slices, unaligned };

struct attention_test_case {
    int batches = 1, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;  // rows of the tensors
    int head_dim_qk = 64, head_dim_v = 64;
    layout lie = layout::batch_sequence_head;
    std::vector<int> seqused_k = {};               // for a padded batch
    std::vector<std::pair<int, int>> packed = {};  // varlen: seqlen_q and seqlen_k of each sequence
    int page_size = 0;                             // of paged KV; 0: contiguous
    float spread = 1;                              // of Q and K
    float scale = 0;                               // 0: the launcher's default
    bool sinks = false;

    // The visible keys: a window, or a chunk, limited by random lengths, and two of three.
    int left = imbrex::unbounded, right = imbrex::unbounded;
    int chunk = 0;
    bool bounded = false;
    bool holes = false;
    // The score_mod.
    bool capped = false;
    bool sloped = false;
    bool biased = false;
    bool own_score = false;

    int members() const { return packed.empty() ? batches : static_cast<int>(packed.size()); }
};

// The rows of one batch entry, or of one varlen sequence.
struct attention_member {
    int batch;  // of the tensors
    int first_query, seqlen_q;
    int first_key, seqlen_k;
    int number = 0;
};

inline std::vector<attention_member> members_of(const attention_test_case& c) {
    std::vector<attention_member> all;
    int query = 0, key = 0;
    for (const auto& [seqlen_q, seqlen_k] : c.packed) {
        all.push_back({0, query, seqlen_q, key, seqlen_k, static_cast<int>(all.size())});
        query += seqlen_q;
        key += seqlen_k;
    }
    for (int i = 0; c.packed.empty() && i < c.batches; ++i) {
        all.push_back({i, 0, c.seqlen_q, 0, c.seqused_k.empty() ? c.seqlen_k : c.seqused_k[i], i});
    }
    return all;
}

// Pages in random order, some unused. Block table entries behind a sequence's last key are invalid.
struct page_table {
    int per_sequence = 0, pages = 0;
    std::vector<int> entries;

    explicit page_table(const attention_test_case& c) {
        if (c.page_size == 0) return;
        const std::vector<attention_member> members = members_of(c);
        const auto needed = [&](int seqlen_k) { return (seqlen_k + c.page_size - 1) / c.page_size; };
        for (const attention_member& one : members) {
            per_sequence = std::max(per_sequence, needed(one.seqlen_k));
            pages += needed(one.seqlen_k);
        }
        std::vector<int> order(static_cast<std::size_t>(pages += 3));
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), std::mt19937(7));
        entries.assign(members.size() * static_cast<std::size_t>(per_sequence), 1 << 29);
        for (const attention_member& one : members) {
            for (int i = 0; i < needed(one.seqlen_k); ++i) {
                entries[static_cast<std::size_t>(one.number * per_sequence + i)] = order.back();
                order.pop_back();
            }
        }
    }
};

// Offsets of Q, K and V in one array and of O in another.
struct tensor_layout {
    std::int64_t offset = 0;
    std::int64_t extents[4] = {};
    std::int64_t strides[3] = {};

    std::size_t at(int batch, int head, int row) const {
        return static_cast<std::size_t>(offset + batch * strides[0] + head * strides[1] + row * strides[2]);
    }
    std::int64_t end() const {
        std::int64_t last = offset + extents[3];
        for (int i = 0; i < 3; ++i) last += std::max<std::int64_t>(extents[i] - 1, 0) * strides[i];
        return last;
    }
    template <class T>
    attention_view<T> view(T* array) const {
        return {array + offset, {extents[0], extents[1], extents[2], extents[3]}, {strides[0], strides[1], strides[2]}};
    }
};

struct attention_placement {
    tensor_layout q, k, v, out;
    std::size_t inputs = 0, outputs = 0;
    page_table table;
    int page_size;

    explicit attention_placement(const attention_test_case& c) : table(c), page_size(c.page_size) {
        const int together = c.heads + 2 * c.kv_heads;
        const bool paged = page_size > 0;
        if (!paged && c.lie == layout::one_tensor && c.seqlen_q == c.seqlen_k && c.head_dim_qk == c.head_dim_v) {
            q = one(layout::batch_sequence_head, 0, c.batches, together, c.seqlen_q, c.head_dim_qk);
            k = v = q;
            k.offset += c.heads * c.head_dim_qk;
            v.offset += (c.heads + c.kv_heads) * c.head_dim_qk;
            q.extents[1] = c.heads;
            k.extents[1] = v.extents[1] = c.kv_heads;
            inputs = static_cast<std::size_t>(c.batches) * together * c.seqlen_q * c.head_dim_qk;
        } else {
            q = one(c.lie, 0, c.batches, c.heads, c.seqlen_q, c.head_dim_qk);
            const int key_batches = paged ? table.pages : c.batches, key_rows = paged ? page_size : c.seqlen_k;
            k = one(c.lie, q.end(), key_batches, c.kv_heads, key_rows, c.head_dim_qk);
            v = one(c.lie, k.end(), key_batches, c.kv_heads, key_rows, c.head_dim_v);
            inputs = static_cast<std::size_t>(v.end()) + 300;
        }
        out = one(c.lie, 0, c.batches, c.heads, c.seqlen_q, c.head_dim_v);
        outputs = static_cast<std::size_t>(out.end()) + 300;
    }

    // The offset of a key in K, or of its value in V.
    std::size_t key_at(const tensor_layout& in, const attention_member& one, int head, int key) const {
        if (page_size == 0) return in.at(one.batch, head, one.first_key + key);
        const int page = table.entries[static_cast<std::size_t>(one.number * table.per_sequence + key / page_size)];
        return in.at(page, head, key % page_size);
    }

  private:
    static tensor_layout one(layout lie, std::int64_t from, std::int64_t batches, std::int64_t heads, std::int64_t rows,
                             std::int64_t head_dim) {
        const std::int64_t first = (from + 15) / 16 * 16;
        switch (lie) {
            case layout::batch_head_sequence:
                return {first, {batches, heads, rows, head_dim}, {heads * rows * head_dim, rows * head_dim, head_dim}};
            case layout::slices: {
                const std::int64_t head = head_dim + 16, row = (heads + 1) * head, batch = (rows + 5) * row;
                return {first + 2 * row + head, {batches, heads, rows, head_dim}, {batch, head, row}};
            }
            case layout::unaligned: {
                const std::int64_t row = heads * (head_dim + 1) + 2;
                return {first + 3, {batches, heads, rows, head_dim}, {rows * row + 1, head_dim + 1, row}};
            }
            default:
                return {first, {batches, heads, rows, head_dim}, {rows * heads * head_dim, head_dim, heads * head_dim}};
        }
    }
};

}  // namespace imbrex_test
