// Which keys a query may see. A mask is any type with
//
//     IMBREX_FN key_range keys(const attention_sequence&, query_range) const;             all that any of these queries sees
//     IMBREX_FN bool whole(const attention_sequence&, query_range, key_range) const;      each of them sees all of these
//     IMBREX_FN bool keep(const attention_sequence&, int query, int key) const;           this one sees this one
//
// The first lets a kernel skip what nobody sees, the second makes it spend nothing where all is seen; both may err on the safe
// side (more keys; false). `keep` is also asked of places behind the lengths, where it may say anything but must not read, and
// costs least if it asks all its questions, joined by & instead of &&. That keys end where their sequence ends, a kernel sees
// to itself.
//
// A mask of one's own needs only `keep` if it derives from `mask_without_shortcuts`. Masks are joined by
// all_masks(causal_mask{}, window_mask{1024, 0}, ...). One under which later queries see more keys may say so
// (`static constexpr bool later_queries_see_more = true;`), and work is dealt out accordingly.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

// What is attended to: one head of one member of the batch, and the lengths of its queries and keys.
struct attention_sequence {
    int batch;
    int head;
    int queries;
    int keys;

    // Where query 0 stands among the keys, if the last query belongs to the last key.
    IMBREX_FN int offset() const { return keys - queries; }
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
    IMBREX_FN key_range keys(const attention_sequence& s, query_range) const { return {0, s.keys}; }
    IMBREX_FN bool whole(const attention_sequence&, query_range, key_range) const { return true; }
    IMBREX_FN bool keep(const attention_sequence&, int, int) const { return true; }
};

// Keys up to the query's own, the last query's being the last key.
struct causal_mask {
    static constexpr bool later_queries_see_more = true;

    IMBREX_FN key_range keys(const attention_sequence& s, query_range q) const { return {0, q.end + s.offset()}; }
    IMBREX_FN bool whole(const attention_sequence& s, query_range q, key_range k) const {
        return k.end <= q.first + s.offset() + 1;
    }
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const { return key <= query + s.offset(); }
};

// At most `left` keys before the query's own and `right` after it, or `unbounded`.
struct window_mask {
    static constexpr bool later_queries_see_more = false;

    int left;
    int right;

    IMBREX_FN key_range keys(const attention_sequence& s, query_range q) const {
        return {q.first + s.offset() - left, q.end + s.offset() + right};
    }
    IMBREX_FN bool whole(const attention_sequence& s, query_range q, key_range k) const {
        return k.first >= q.end - 1 + s.offset() - left && k.end <= q.first + s.offset() + right + 1;
    }
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        const int own = query + s.offset();
        return (key >= own - left) & (key <= own + right);
    }
};

// Causal inside chunks of so many keys; nothing is seen across.
struct chunked_mask {
    static constexpr bool later_queries_see_more = false;

    int chunk;

    IMBREX_FN key_range keys(const attention_sequence& s, query_range q) const {
        const int own = q.first + s.offset();
        return {own < 0 ? 0 : own / chunk * chunk, q.end + s.offset()};
    }
    IMBREX_FN bool whole(const attention_sequence& s, query_range q, key_range k) const {
        return k.end <= q.first + s.offset() + 1 && k.first >= (q.end - 1 + s.offset()) / chunk * chunk;
    }
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        const int own = query + s.offset();
        return (key <= own) & (own >= 0) & (key >= own / chunk * chunk);
    }
};

// Keys up to a number for each member of the batch. Queries stand where they stood: of a padded batch whose last query belongs
// to the last of these keys, the lengths are told to the kernel instead, which then also makes nothing of what lies behind.
struct length_mask {
    const int* lengths;

    IMBREX_FN key_range keys(const attention_sequence& s, query_range) const { return {0, lengths[s.batch]}; }
    IMBREX_FN bool whole(const attention_sequence& s, query_range, key_range k) const {
        return k.end <= lengths[s.batch];
    }
    IMBREX_FN bool keep(const attention_sequence& s, int, int key) const { return key < lengths[s.batch]; }
};

// For masks that only say `keep`.
struct mask_without_shortcuts {
    IMBREX_FN key_range keys(const attention_sequence& s, query_range) const { return {0, s.keys}; }
    IMBREX_FN bool whole(const attention_sequence&, query_range, key_range) const { return false; }
};

template <class Mask>
constexpr bool later_queries_see_more(bool unless_it_says = false) {
    if constexpr (requires { Mask::later_queries_see_more; }) {
        return Mask::later_queries_see_more;
    } else {
        return unless_it_says;
    }
}

// Where both allow it.
template <class First, class Second>
struct both_masks {
    // If either's queries do, and the other does not say that its do not.
    static constexpr bool later_queries_see_more =
        imbrex::later_queries_see_more<First>(imbrex::later_queries_see_more<Second>()) &&
        imbrex::later_queries_see_more<Second>(imbrex::later_queries_see_more<First>());

    First first;
    Second second;

    IMBREX_FN key_range keys(const attention_sequence& s, query_range q) const {
        const key_range a = first.keys(s, q), b = second.keys(s, q);
        return {a.first > b.first ? a.first : b.first, a.end < b.end ? a.end : b.end};
    }
    IMBREX_FN bool whole(const attention_sequence& s, query_range q, key_range k) const {
        return first.whole(s, q, k) && second.whole(s, q, k);
    }
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        // Both are asked: a branch would cost more.
        const bool by_first = first.keep(s, query, key), by_second = second.keep(s, query, key);
        return by_first & by_second;
    }
};

template <class Mask>
constexpr Mask all_masks(const Mask& one) {
    return one;
}
template <class First, class... Others>
constexpr auto all_masks(const First& first, const Others&... others) {
    return both_masks<First, decltype(all_masks(others...))>{first, all_masks(others...)};
}

}  // namespace imbrex
