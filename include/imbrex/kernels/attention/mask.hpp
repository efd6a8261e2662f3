// Attention masks: causal, sliding window, chunked, length, and any combination. A mask is any type with
//
//     // The keys that any of these queries sees. May be too large. Tiles outside are neither loaded nor computed.
//     IMBREX_FN key_range visible_keys(const attention_extents&, query_range) const;
//     // Whether each of these queries sees all of these keys. May be false. Such tiles skip the mask.
//     IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const;
//     // Whether this query sees this key.
//     IMBREX_FN bool keep(const attention_extents&, int query, int key) const;
//
// `keep` is also called with positions behind the sequence lengths; it may return anything there but must not read
// memory. Join conditions with & instead of &&: branches cost more. Kernels mask keys behind the end of a sequence
// themselves.
//
// A mask under which each query sees a contiguous range of keys may return it, which makes partially masked tiles
// cheaper:
//
//     // Exactly the keys that this query sees.
//     IMBREX_FN key_range visible_keys_of_query(const attention_extents&, int query) const;
//
// and for the backward pass, which visits the query blocks that see a block of keys:
//
//     // The queries that see any of these keys. May be too large.
//     IMBREX_FN query_range visible_queries(const attention_extents&, key_range) const;
//
// A custom mask that derives from `mask_base` needs only `keep`. and_masks(causal_mask{}, window_mask{1024, 0}, ...) is
// the intersection of masks. `static constexpr bool causal_like = true;` says that later queries see more keys; the
// tile scheduler then balances the load as for a causal mask. With `static constexpr bool reads_no_memory = true;` it
// calls `visible_keys` on the host before launch instead.
#pragma once

#include <imbrex/core/config.hpp>

#include <concepts>

namespace imbrex {

// One (batch, head) pair and its sequence lengths.
struct attention_extents {
    int batch;
    int head;
    int seqlen_q;
    int seqlen_k;

    // The key position of query 0: the last query is aligned with the last key (bottom-right).
    IMBREX_FN int offset() const { return seqlen_k - seqlen_q; }
};

// Half-open: from `first` up to, not including, `end`.
struct key_range {
    int first;
    int end;
};
struct query_range {
    int first;
    int end;
};

// A window side without a limit.
inline constexpr int unbounded = 1 << 30;

template <class Mask>
concept attention_mask = requires(const Mask& mask, const attention_extents& extents, query_range queries,
                                  key_range keys) {
    { mask.visible_keys(extents, queries) } -> std::convertible_to<key_range>;
    { mask.fully_unmasked(extents, queries, keys) } -> std::convertible_to<bool>;
    { mask.keep(extents, 0, 0) } -> std::convertible_to<bool>;
};

struct full_mask {
    static constexpr bool reads_no_memory = true;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, s.seqlen_k}; }
    IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const { return true; }
    IMBREX_FN bool keep(const attention_extents&, int, int) const { return true; }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int) const { return {0, s.seqlen_k}; }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range) const { return {0, s.seqlen_q}; }
};

// Keys up to the query's position; the last query is aligned with the last key.
struct causal_mask {
    static constexpr bool causal_like = true;
    static constexpr bool reads_no_memory = true;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        return {0, q.end + s.offset()};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        return k.end <= q.first + s.offset() + 1;
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const { return key <= query + s.offset(); }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        return {0, query + s.offset() + 1};
    }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const {
        return {k.first - s.offset(), s.seqlen_q};
    }
};

// Sliding window: at most `left` keys before the query's position and `right` after it, or `unbounded`.
struct window_mask {
    static constexpr bool causal_like = true;
    static constexpr bool reads_no_memory = true;

    int left;
    int right;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        return {q.first + s.offset() - left, q.end + s.offset() + right};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        const int offset = s.offset();
        return (k.first >= q.end - 1 + offset - left) & (k.end <= q.first + offset + right + 1);
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        const int own = query + s.offset();
        return (key >= own - left) & (key <= own + right);
    }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        const int own = query + s.offset();
        return {own - left, own + right + 1};
    }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const {
        return {k.first - s.offset() - right, k.end - s.offset() + left};
    }
};

// Causal inside chunks of `chunk` keys; nothing is visible across chunks.
struct chunked_mask {
    static constexpr bool causal_like = false;
    static constexpr bool reads_no_memory = true;

    int chunk;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        const int own = q.first + s.offset();
        return {own < 0 ? 0 : own / chunk * chunk, q.end + s.offset()};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        const int offset = s.offset();
        return (k.end <= q.first + offset + 1) & (k.first >= (q.end - 1 + offset) / chunk * chunk);
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        const int own = query + s.offset();
        return (key <= own) & (own >= 0) & (key >= own / chunk * chunk);
    }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const {
        const int own = query + s.offset();
        return {own / chunk * chunk, own + 1};
    }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const {
        return {k.first - s.offset(), ((k.end - 1) / chunk + 1) * chunk - s.offset()};
    }
};

// Keys up to a length for each batch entry. Query positions do not move with the length. For a padded batch whose last
// query is aligned with the last valid key, use attention_problem::seqused_k instead, which also ignores whatever lies
// behind.
struct length_mask {
    const int* lengths;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, lengths[s.batch]}; }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range, key_range k) const {
        return k.end <= lengths[s.batch];
    }
    IMBREX_FN bool keep(const attention_extents& s, int, int key) const { return key < lengths[s.batch]; }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int) const { return {0, lengths[s.batch]}; }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const {
        return {0, k.first < lengths[s.batch] ? s.seqlen_q : 0};
    }
};

// Base of masks that define only `keep`.
struct mask_base {
    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, s.seqlen_k}; }
    IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const { return false; }
};

template <class Mask>
constexpr bool causal_like(bool otherwise = false) {
    if constexpr (requires { Mask::causal_like; }) {
        return Mask::causal_like;
    } else {
        return otherwise;
    }
}

template <class Mask>
constexpr bool reads_no_memory() {
    if constexpr (requires { Mask::reads_no_memory; }) {
        return Mask::reads_no_memory;
    } else {
        return false;
    }
}

template <class Mask>
constexpr bool mask_has_ranges() {
    return requires(const Mask& one, const attention_extents& s) {
        one.visible_keys_of_query(s, 0);
    };
}

template <class Mask>
constexpr bool mask_has_visible_queries() {
    return requires(const Mask& one, const attention_extents& s) {
        one.visible_queries(s, key_range{0, 0});
    };
}

template <class Range>
constexpr IMBREX_FN Range intersect(Range a, Range b) {
    return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

// The intersection of two masks.
template <class First, class Second>
struct and_mask {
    // True if one is causal_like and the other does not declare the contrary.
    static constexpr bool causal_like = imbrex::causal_like<First>(imbrex::causal_like<Second>()) &&
                                        imbrex::causal_like<Second>(imbrex::causal_like<First>());
    static constexpr bool reads_no_memory = imbrex::reads_no_memory<First>() && imbrex::reads_no_memory<Second>();

    First first;
    Second second;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        return intersect(first.visible_keys(s, q), second.visible_keys(s, q));
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        const bool by_first = first.fully_unmasked(s, q, k), by_second = second.fully_unmasked(s, q, k);
        return by_first & by_second;
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        // Evaluate both: a branch would cost more.
        const bool by_first = first.keep(s, query, key), by_second = second.keep(s, query, key);
        return by_first & by_second;
    }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const
        requires(mask_has_ranges<First>() && mask_has_ranges<Second>()) {
        return intersect(first.visible_keys_of_query(s, query), second.visible_keys_of_query(s, query));
    }
    IMBREX_FN query_range visible_queries(const attention_extents& s, key_range k) const
        requires(mask_has_visible_queries<First>() && mask_has_visible_queries<Second>()) {
        return intersect(first.visible_queries(s, k), second.visible_queries(s, k));
    }
};

template <class Mask>
constexpr Mask and_masks(const Mask& one) {
    return one;
}
template <class First, class... Others>
constexpr auto and_masks(const First& first, const Others&... others) {
    return and_mask<First, decltype(and_masks(others...))>{first, and_masks(others...)};
}

}  // namespace imbrex
