// Attention masks that callers compute as tensors.
//
//     key_range_mask     each query sees a contiguous range of keys: padding, packed documents, sliding windows, a
//                        cache that is longer than its contents
//     dense_mask         any mask, as booleans [batch, head, query, key]
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <cstdint>

namespace imbrex::bindings {

// The range of keys of each query, [batch, query] without varlen. First keys and ends must not decrease from one query to
// the next; a range whose end is at most its first key is empty.
struct key_range_mask {
    static constexpr bool causal_like = true;

    const key_range* ranges;

    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        return query < s.seqlen_q ? range_of(s, query) : key_range{0, 0};
    }
    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        const int last = last_of(s, q);
        return last < q.first ? key_range{0, 0} : key_range{range_of(s, q.first).first, range_of(s, last).end};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        const int last = last_of(s, q);
        if (last < q.first) return true;
        return (k.first >= range_of(s, last).first) & (k.end <= range_of(s, q.first).end);
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        const key_range seen = visible_keys_of_query(s, query);
        return (key >= seen.first) & (key < seen.end);
    }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const {
        return {first_query(s, [=](key_range seen) { return seen.end > k.first; }),
                first_query(s, [=](key_range seen) { return seen.first >= k.end; })};
    }

  private:
    IMBREX_FN key_range range_of(const attention_extents& s, int query) const {
        return ranges[std::int64_t{s.batch} * s.seqlen_q + query];
    }
    IMBREX_FN static int last_of(const attention_extents& s, query_range q) {
        return (q.end < s.seqlen_q ? q.end : s.seqlen_q) - 1;
    }
    // By bisection: where the predicate, false for the first queries, becomes true.
    template <class Predicate>
    IMBREX_FN int first_query(const attention_extents& s, Predicate holds) const {
        int first = 0, end = s.seqlen_q;
        while (first < end) {
            const int middle = (first + end) / 2;
            if (holds(range_of(s, middle))) {
                end = middle;
            } else {
                first = middle + 1;
            }
        }
        return first;
    }
};

// keep[batch, head, query, key] with contiguous keys. Strides in elements; 0 for a dimension that the mask does not have.
struct dense_mask {
    const bool* kept;
    std::int64_t batch_stride, head_stride, query_stride;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, s.seqlen_k}; }
    IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const { return false; }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        if (query >= s.seqlen_q || key >= s.seqlen_k) return false;
        return kept[s.batch * batch_stride + s.head * head_stride + query * query_stride + key];
    }
};

}  // namespace imbrex::bindings
