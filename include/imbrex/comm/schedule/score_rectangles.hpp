// Which scores a rank's queries need against another rank's keys, under a causal or sliding-window mask, as a few
// rectangles with a window mask each. Kernels then need no token positions: the tokens of both ranks are ranges of the
// same stride, so the visible keys of a query range form a diagonal band in row coordinates. A block of scores is one
// such band, or a few:
//
//            keys                 keys                 keys                 keys
//          # . . .              # # . .              . . . .              . . . .
//  queries # # . .      queries # # . .      queries . . . .      queries # . . .
//          # # # .              # # . .              # # # #              # # . .
//          # # # #              # # . .              # # # #              # # # .
//          own keys             zigzag, keys of      zigzag, keys of      striped, keys of
//                               an earlier rank      a later rank         a later rank
//
// Each is a rectangle under a window_mask: one attention call over these rows and keys computes it.
#pragma once

#include <imbrex/comm/schedule/token_ranges.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <algorithm>
#include <cstdint>

namespace imbrex {

// Positional masks as windows: the number of keys visible before and after a query.
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

// A rectangle of query rows and key rows, relative to the first rows of their ranks. A query sees a key if key - query,
// relative to the first rows of the rectangle, is in [lower, upper].
struct score_rectangle {
    int q_start = 0;
    int seqlen_q = 0;
    int k_start = 0;
    int seqlen_k = 0;
    int lower = -unbounded;
    int upper = unbounded;
    std::int64_t unmasked_scores = 0;

    constexpr bool full() const { return unmasked_scores == std::int64_t{seqlen_q} * seqlen_k; }
    // For an attention call over these rows only.
    constexpr window_mask mask() const {
        const int offset = seqlen_k - seqlen_q;
        return {lower == -unbounded ? unbounded : offset - lower, upper == unbounded ? unbounded : upper - offset};
    }
};

namespace detail {

// The band lower <= key - query <= upper; beyond any distance between rows it is unbounded.
inline constexpr std::int64_t no_end = std::int64_t{1} << 40;
struct diagonal_band {
    std::int64_t lower = -no_end;
    std::int64_t upper = no_end;
};

// Number of pairs 0 <= query < seqlen_q and 0 <= key < seqlen_k with key - query <= upper.
constexpr std::int64_t pairs_up_to(std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t upper) {
    // Queries before `some` see no key, those from `all` on see every key.
    const std::int64_t some = std::clamp<std::int64_t>(-upper, 0, seqlen_q);
    const std::int64_t all = std::clamp<std::int64_t>(seqlen_k - upper - 1, some, seqlen_q);
    const std::int64_t between = (all - some) * (some + all + 1 + 2 * upper) / 2;
    return between + (seqlen_q - all) * seqlen_k;
}

constexpr std::int64_t floor_of_ratio(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

// A rectangle and its band, in row coordinates of the block; unbounded if everything is visible.
struct banded_rectangle {
    std::int64_t q_start = 0;
    std::int64_t seqlen_q = 0;
    std::int64_t k_start = 0;
    std::int64_t seqlen_k = 0;
    diagonal_band band = {};

    constexpr std::int64_t unmasked_scores_in(diagonal_band other) const {
        const std::int64_t shift = q_start - k_start;
        const std::int64_t seen = pairs_up_to(seqlen_q, seqlen_k, other.upper + shift) -
                                  pairs_up_to(seqlen_q, seqlen_k, other.lower - 1 + shift);
        return std::max<std::int64_t>(seen, 0);
    }
    constexpr std::int64_t unmasked_scores() const { return unmasked_scores_in(band); }
    // Whether the other band selects the same scores here.
    constexpr bool same_in(diagonal_band other) const {
        const diagonal_band both{std::max(band.lower, other.lower), std::min(band.upper, other.upper)};
        return unmasked_scores_in(other) == unmasked_scores() && unmasked_scores_in(both) == unmasked_scores();
    }
    constexpr score_rectangle rectangle() const {
        const std::int64_t shift = q_start - k_start;
        const std::int64_t lower = band.lower + shift, upper = band.upper + shift;
        score_rectangle made{};
        made.q_start = static_cast<int>(q_start);
        made.seqlen_q = static_cast<int>(seqlen_q);
        made.k_start = static_cast<int>(k_start);
        made.seqlen_k = static_cast<int>(seqlen_k);
        made.lower = lower <= -seqlen_q ? -unbounded : static_cast<int>(lower);
        made.upper = upper >= seqlen_k ? unbounded : static_cast<int>(upper);
        made.unmasked_scores = unmasked_scores();
        return made;
    }
};

// The scores of query range `q` against key range `k`.
constexpr banded_rectangle banded_rectangle_between(const token_ranges& q_tokens, int q, const token_ranges& k_tokens,
                                                    int k, const window_mask& mask) {
    const token_range &some = q_tokens.ranges[q], &others = k_tokens.ranges[k];
    banded_rectangle made{
        q == 0 ? 0 : q_tokens.ranges[0].count, some.count, k == 0 ? 0 : k_tokens.ranges[0].count, others.count, {}};
    const std::int64_t distance = std::int64_t{some.first} - others.first;
    const std::int64_t shift = made.k_start - made.q_start;
    diagonal_band band{};
    // Distances in strides, rounded inward.
    if (mask.left != unbounded) band.lower = -floor_of_ratio(mask.left - distance, q_tokens.stride) + shift;
    if (mask.right != unbounded) band.upper = floor_of_ratio(distance + mask.right, q_tokens.stride) + shift;
    if (made.unmasked_scores_in(band) != made.seqlen_q * made.seqlen_k) made.band = band;
    return made;
}

// Joins rectangles into their bounding rectangle, if a single band describes all of them.
template <int Count>
constexpr bool join(const banded_rectangle (&rectangles)[Count], banded_rectangle& joined) {
    for (const banded_rectangle& candidate : rectangles) {
        bool same = true;
        for (const banded_rectangle& other : rectangles) same = same && other.same_in(candidate.band);
        if (!same) continue;
        const banded_rectangle &first = rectangles[0], &last = rectangles[Count - 1];
        joined = {first.q_start, last.q_start + last.seqlen_q - first.q_start, first.k_start,
                  last.k_start + last.seqlen_k - first.k_start, candidate.band};
        return true;
    }
    return false;
}

}  // namespace detail

// Number of unmasked scores. Both sides have the same stride.
constexpr std::int64_t unmasked_scores_between(const token_ranges& q_tokens, const token_ranges& k_tokens,
                                               const window_mask& mask) {
    std::int64_t sum = 0;
    for (int q = 0; q < 2; ++q) {
        for (int k = 0; k < 2; ++k)
            sum += detail::banded_rectangle_between(q_tokens, q, k_tokens, k, mask).unmasked_scores();
    }
    return sum;
}

// The same as disjoint rectangles, as few as possible.
struct score_rectangles {
    score_rectangle all[4] = {};
    int count = 0;

    constexpr const score_rectangle* begin() const { return all; }
    constexpr const score_rectangle* end() const { return all + count; }
    constexpr std::int64_t unmasked_scores() const {
        std::int64_t sum = 0;
        for (int i = 0; i < count; ++i) sum += all[i].unmasked_scores;
        return sum;
    }
    constexpr void add(const detail::banded_rectangle& banded) {
        if (banded.unmasked_scores() > 0) all[count++] = banded.rectangle();
    }
};

constexpr score_rectangles score_rectangles_between(const token_ranges& q_tokens, const token_ranges& k_tokens,
                                                    const window_mask& mask) {
    using detail::banded_rectangle;
    const banded_rectangle all[4] = {detail::banded_rectangle_between(q_tokens, 0, k_tokens, 0, mask),
                                     detail::banded_rectangle_between(q_tokens, 0, k_tokens, 1, mask),
                                     detail::banded_rectangle_between(q_tokens, 1, k_tokens, 0, mask),
                                     detail::banded_rectangle_between(q_tokens, 1, k_tokens, 1, mask)};
    banded_rectangle joined{};
    score_rectangles one{};
    if (detail::join(all, joined)) {
        one.add(joined);
        return one;
    }
    // Join pairs that share queries, or pairs that share keys, whichever leaves fewer rectangles.
    score_rectangles best{};
    for (const bool same_queries : {true, false}) {
        score_rectangles made{};
        for (int half = 0; half < 2; ++half) {
            const banded_rectangle pair[2] = {same_queries ? all[2 * half] : all[half],
                                              same_queries ? all[2 * half + 1] : all[half + 2]};
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
