// Which keys a query may see. A mask is any type with
//
//     IMBREX_FN key_range visible_keys(const attention_extents&, query_range) const;             all that any of these queries sees
//     IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const;      each of them sees all of these
//     IMBREX_FN bool keep(const attention_extents&, int query, int key) const;           this one sees this one
//
// The first lets a kernel skip what nobody sees, the second makes it spend nothing where all is seen; both may err on the safe
// side (more keys; false). `keep` is also asked of places behind the lengths, where it may say anything but must not read. All
// cost least if they ask all their questions, joined by & instead of &&. That keys end where their sequence ends, a kernel sees
// to itself.
//
// A mask under which a query sees keys that follow one another may say which, and a tile that it cuts costs less:
//
//     IMBREX_FN key_range visible_keys_of_query(const attention_extents&, int query) const;            exactly those that this one sees
//
// A mask of one's own needs only `keep` if it derives from `mask_base`. Masks are joined by
// and_masks(causal_mask{}, window_mask{1024, 0}, ...). One under which later queries see more keys may say so
// (`static constexpr bool causal_like = true;`), and work is dealt out accordingly: as a causal mask's, or, if it also says
// that it reads no memory (`static constexpr bool reads_no_memory = true;`), by what its `visible_keys` say before the launch.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

// What is attended to: one head of one member of the batch, and the lengths of its queries and keys.
struct attention_extents {
    int batch;
    int head;
    int seqlen_q;
    int seqlen_k;

    // Where query 0 stands among the keys, if the last query belongs to the last key.
    IMBREX_FN int offset() const { return seqlen_k - seqlen_q; }
};

// From `first` up to, not including, `end`.
struct key_range {
    int first;
    int end;
};
struct query_range {
    int first;
    int end;
};

// How far a window reaches that does not end on a side.
inline constexpr int unbounded = 1 << 30;

struct full_mask {
    static constexpr bool reads_no_memory = true;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, s.seqlen_k}; }
    IMBREX_FN bool fully_unmasked(const attention_extents&, query_range, key_range) const { return true; }
    IMBREX_FN bool keep(const attention_extents&, int, int) const { return true; }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int) const { return {0, s.seqlen_k}; }
};

// Keys up to the query's own, the last query's being the last key.
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
};

// At most `left` keys before the query's own and `right` after it, or `unbounded`. The first queries see less than `left` keys.
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
};

// Causal inside chunks of so many keys; nothing is seen across.
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
};

// Keys up to a number for each member of the batch. Queries stand where they stood: of a padded batch whose last query belongs
// to the last of these keys, the lengths are told to the kernel instead, which then also makes nothing of what lies behind.
struct length_mask {
    const int* lengths;

    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range) const { return {0, lengths[s.batch]}; }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range, key_range k) const {
        return k.end <= lengths[s.batch];
    }
    IMBREX_FN bool keep(const attention_extents& s, int, int key) const { return key < lengths[s.batch]; }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int) const { return {0, lengths[s.batch]}; }
};

// For masks that only say `keep`.
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

// Keys in both.
constexpr IMBREX_FN key_range intersect(key_range a, key_range b) {
    return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
}

// Where both allow it.
template <class First, class Second>
struct and_mask {
    // If either's queries do, and the other does not say that its do not.
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
        // Both are asked: a branch would cost more.
        const bool by_first = first.keep(s, query, key), by_second = second.keep(s, query, key);
        return by_first & by_second;
    }
    IMBREX_FN key_range visible_keys_of_query(const attention_extents& s, int query) const
        requires(mask_has_ranges<First>() && mask_has_ranges<Second>()) {
        return intersect(first.visible_keys_of_query(s, query), second.visible_keys_of_query(s, query));
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
