// What queries of one rank see of the keys of another: how many scores there are, and which. Positions decide, but they need not
// go into a kernel. Both ranks' tokens are runs of the same stride, so what a query sees of a run of keys are the rows from a
// distance to its own row up to another: a band. A block of scores is one such band, or a few side by side:
//
//            keys                 keys                 keys                 keys
//          # . . .              # # . .              . . . .              . . . .
//  queries # # . .      queries # # . .      queries . . . .      queries # . . .
//          # # # .              # # . .              # # # #              # # . .
//          # # # #              # # . .              # # # #              # # # .
//          its own keys         zigzag, keys of      zigzag, keys of      striped, keys of
//                               an earlier rank      a later rank         a later rank
//
// Each is a rectangle under a window_mask: attention over these rows and these keys gives it.
#pragma once

#include <imbrex/comm/schedule/token_runs.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <algorithm>
#include <cstdint>

namespace imbrex {

// Masks that follow from positions, as windows: how far a query sees before and behind itself.
constexpr window_mask as_window(full_mask) {
    return {unbounded, unbounded};
}
constexpr window_mask as_window(causal_mask) {
    return {unbounded, 0};
}
constexpr window_mask as_window(window_mask mask) {
    return mask;
}

enum class block_kind { skipped, partial, full };

// Rows of queries and of keys, counted from the first ones of their ranks. A query sees a key if key - query, counted from the
// part's first rows, is from `lower` to `upper`.
struct block_part {
    int first_query = 0;
    int queries = 0;
    int first_key = 0;
    int keys = 0;
    int lower = -unbounded;
    int upper = unbounded;
    std::int64_t entries = 0;  // scores that are seen

    constexpr bool full() const { return entries == std::int64_t{queries} * keys; }
    // For an attention whose queries and keys are these rows alone.
    constexpr window_mask mask() const {
        const int offset = keys - queries;
        return {lower == -unbounded ? unbounded : offset - lower, upper == unbounded ? unbounded : upper - offset};
    }
};

namespace detail {

// The band lower <= key - query <= upper. Farther than any two rows are apart: it has no end there.
inline constexpr std::int64_t no_end = std::int64_t{1} << 40;
struct row_band {
    std::int64_t lower = -no_end;
    std::int64_t upper = no_end;
};

// Pairs of 0 <= query < queries and 0 <= key < keys with key - query <= upper.
constexpr std::int64_t pairs_up_to(std::int64_t queries, std::int64_t keys, std::int64_t upper) {
    // Queries before `some` see nothing, those from `all` on every key.
    const std::int64_t some = std::clamp<std::int64_t>(-upper, 0, queries);
    const std::int64_t all = std::clamp<std::int64_t>(keys - upper - 1, some, queries);
    const std::int64_t between = (all - some) * (some + all + 1 + 2 * upper) / 2;
    return between + (queries - all) * keys;
}

constexpr std::int64_t floor_of_ratio(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

// Rows and keys of a block, and what is seen there. The band is one of the block's rows; where all is seen it has no ends.
struct block_piece {
    std::int64_t first_query = 0;
    std::int64_t queries = 0;
    std::int64_t first_key = 0;
    std::int64_t keys = 0;
    row_band band = {};

    constexpr std::int64_t entries_in(row_band other) const {
        const std::int64_t shift = first_query - first_key;
        const std::int64_t seen =
            pairs_up_to(queries, keys, other.upper + shift) - pairs_up_to(queries, keys, other.lower - 1 + shift);
        return std::max<std::int64_t>(seen, 0);
    }
    constexpr std::int64_t entries() const { return entries_in(band); }
    // Whether the other band leaves the same here.
    constexpr bool same_in(row_band other) const {
        const row_band both{std::max(band.lower, other.lower), std::min(band.upper, other.upper)};
        return entries_in(other) == entries() && entries_in(both) == entries();
    }
    constexpr block_part part() const {
        const std::int64_t shift = first_query - first_key;
        const std::int64_t lower = band.lower + shift, upper = band.upper + shift;
        block_part made{};
        made.first_query = static_cast<int>(first_query);
        made.queries = static_cast<int>(queries);
        made.first_key = static_cast<int>(first_key);
        made.keys = static_cast<int>(keys);
        made.lower = lower <= -queries ? -unbounded : static_cast<int>(lower);
        made.upper = upper >= keys ? unbounded : static_cast<int>(upper);
        made.entries = entries();
        return made;
    }
};

// What run `q` of the queries sees of run `k` of the keys.
constexpr block_piece piece_between(const token_runs& queries, int q, const token_runs& keys, int k,
                                    const window_mask& mask) {
    const token_run &some = queries.runs[q], &others = keys.runs[k];
    block_piece made{q == 0 ? 0 : queries.runs[0].count, some.count, k == 0 ? 0 : keys.runs[0].count, others.count, {}};
    const std::int64_t distance = std::int64_t{some.first} - others.first;
    const std::int64_t shift = made.first_key - made.first_query;
    row_band band{};
    // Whole strides between the two: rounded to those that are within reach.
    if (mask.left != unbounded) band.lower = -floor_of_ratio(mask.left - distance, queries.stride) + shift;
    if (mask.right != unbounded) band.upper = floor_of_ratio(distance + mask.right, queries.stride) + shift;
    if (made.entries_in(band) != made.queries * made.keys) made.band = band;
    return made;
}

// The rectangle around these pieces, if one band says what is seen in all of it.
template <int Count>
constexpr bool join(const block_piece (&pieces)[Count], block_piece& joined) {
    for (const block_piece& candidate : pieces) {
        bool same = true;
        for (const block_piece& other : pieces) same = same && other.same_in(candidate.band);
        if (!same) continue;
        const block_piece &first = pieces[0], &last = pieces[Count - 1];
        joined = {first.first_query, last.first_query + last.queries - first.first_query, first.first_key,
                  last.first_key + last.keys - first.first_key, candidate.band};
        return true;
    }
    return false;
}

}  // namespace detail

// Scores of these queries with these keys, which are runs of the same stride.
constexpr std::int64_t entries_between(const token_runs& queries, const token_runs& keys, const window_mask& mask) {
    std::int64_t sum = 0;
    for (int q = 0; q < 2; ++q) {
        for (int k = 0; k < 2; ++k) sum += detail::piece_between(queries, q, keys, k, mask).entries();
    }
    return sum;
}

// The same, as parts: no score is in two of them, and there are as few as can be.
struct block_parts {
    block_part parts[4] = {};
    int count = 0;

    constexpr const block_part* begin() const { return parts; }
    constexpr const block_part* end() const { return parts + count; }
    constexpr std::int64_t entries() const {
        std::int64_t sum = 0;
        for (int i = 0; i < count; ++i) sum += parts[i].entries;
        return sum;
    }
    constexpr void add(const detail::block_piece& piece) {
        if (piece.entries() > 0) parts[count++] = piece.part();
    }
};

constexpr block_parts parts_between(const token_runs& queries, const token_runs& keys, const window_mask& mask) {
    using detail::block_piece;
    const block_piece all[4] = {
        detail::piece_between(queries, 0, keys, 0, mask), detail::piece_between(queries, 0, keys, 1, mask),
        detail::piece_between(queries, 1, keys, 0, mask), detail::piece_between(queries, 1, keys, 1, mask)};
    block_piece joined{};
    block_parts one{};
    if (detail::join(all, joined)) {
        one.add(joined);
        return one;
    }
    // Two by two: those of the same queries, or those of the same keys, whichever leaves fewer.
    block_parts best{};
    for (const bool same_queries : {true, false}) {
        block_parts made{};
        for (int line = 0; line < 2; ++line) {
            const block_piece pair[2] = {same_queries ? all[2 * line] : all[line],
                                         same_queries ? all[2 * line + 1] : all[line + 2]};
            if (detail::join(pair, joined)) {
                made.add(joined);
            } else {
                made.add(pair[0]);
                made.add(pair[1]);
            }
        }
        if (same_queries || made.count < best.count) best = made;
    }
    return best;
}

}  // namespace imbrex
