// Functions of a score that the last steps of sampling are made of: how much of a sum top_p is, the cut of min_p, and the draw, a
// gumbel_max: each token that is kept waits for an exponentially distributed time, its weight the rate, and the first one is taken. So
// each is taken with its probability, and nothing has to be known of the others.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/counter_rng.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/sample/options.hpp>

#include <cstdint>
#include <limits>

namespace imbrex::detail {

inline constexpr int all_tokens = std::numeric_limits<int>::max();  // as the last of a cut

// The least whole number that is at least this part of a sum, and more than 0.
IMBREX_FN std::uint64_t top_p_target(std::uint64_t sum, float top_p) {
    const double part = static_cast<double>(top_p) * static_cast<double>(sum);
    const auto below = static_cast<std::uint64_t>(part > 0 ? part : 0);
    return static_cast<double>(below) < part || below == 0 ? below + 1 : below;
}

// A cut, and that of min_p if it is the narrower one.
IMBREX_KERNEL sample_threshold with_min_p(const sample_threshold& threshold, const sample_options& options,
                                          float max_score) {
    if (!(options.min_p > 0)) return threshold;
    const float least = max_score + options.temperature * fast_log(options.min_p);
    return least > threshold.min_score ? sample_threshold{least, all_tokens} : threshold;
}

// How soon a token is there, the larger the sooner; -1 if it may not be drawn.
struct gumbel_max {
    relative_probability weight;
    sample_threshold threshold;
    counter_rng stream;

    static IMBREX_FN gumbel_max of(const sample_options& options, float max_score, const sample_threshold& threshold) {
        return gumbel_max{relative_probability::of(max_score, options.temperature), threshold,
                          counter_rng::of(options.seed, static_cast<std::uint64_t>(options.position))};
    }
    IMBREX_FN float operator()(int token, float score) const {
        const float rate = weight(score) / exponential_of(stream.bits(static_cast<std::uint32_t>(token)));
        // Bits are chosen, and not one of two ways: compilers make vectors of that.
        const std::int32_t kept = -static_cast<std::int32_t>(threshold.keeps(score, token));
        const std::int32_t not_kept = __builtin_bit_cast(std::int32_t, -1.0f);
        return __builtin_bit_cast(float, (__builtin_bit_cast(std::int32_t, rate) & kept) | (not_kept & ~kept));
    }
};

// What the logarithm of such a rate, to the base of 2, is surely not above; -infinity for tokens that may not be drawn. Nobody
// waits less than their random number says, -log(1 - x) >= x, and those who come first hardly longer. It takes a third of the time
// of the rate.
struct gumbel_max_bound {
    static constexpr float rounded = 0.01f;  // more than what roundings make of it
    gumbel_max all;

    IMBREX_KERNEL float operator()(int token, float score) const {
        const float power = (score - all.weight.max_score) * all.weight.inverse;
        const float least_wait = uniform_of(all.stream.bits(static_cast<std::uint32_t>(token)));
        const float bound = (power > -125.0f ? power : -125.0f) - hw::log2(least_wait);
        return all.threshold.keeps(score, token) ? bound : minus_infinity;
    }
    // Whether a token of this bound may be as soon as one of this rate.
    static IMBREX_KERNEL bool may_reach(float bound, float rate) { return bound >= hw::log2(rate) - rounded; }
};

}  // namespace imbrex::detail
