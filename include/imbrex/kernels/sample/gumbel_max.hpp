// The Gumbel-max draw, in its equivalent form as an exponential race: token i gets weight_i / e_i, where e_i is an
// exponential random number from a counter-based generator, and the argmax is the sample. Each token wins with its
// softmax probability, no normalisation sum is needed, and the result does not depend on the order of evaluation. Also
// here: the top-p target and the min-p threshold.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/counter_rng.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/sample/options.hpp>

#include <cstdint>
#include <limits>

namespace imbrex::detail {

inline constexpr int all_tokens = std::numeric_limits<int>::max();  // as last_token: no tie is cut

// top_p * sum rounded up, at least 1.
IMBREX_FN std::uint64_t top_p_target(std::uint64_t sum, float top_p) {
    const double part = static_cast<double>(top_p) * static_cast<double>(sum);
    const auto below = static_cast<std::uint64_t>(part > 0 ? part : 0);
    return static_cast<double>(below) < part || below == 0 ? below + 1 : below;
}

// The tighter of a threshold and that of min-p.
IMBREX_KERNEL sample_threshold with_min_p(const sample_threshold& threshold, const sample_options& options,
                                          float max_score) {
    if (!(options.min_p > 0)) return threshold;
    const float least = max_score + options.temperature * fast_log(options.min_p);
    return least > threshold.min_score ? sample_threshold{least, all_tokens} : threshold;
}

// The race value of a token, of which the largest wins; -1 if the token may not be drawn.
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
        // A bitwise select instead of a branch, so that host compilers vectorise the loop.
        const std::int32_t kept = -static_cast<std::int32_t>(threshold.keeps(score, token));
        const std::int32_t not_kept = __builtin_bit_cast(std::int32_t, -1.0f);
        return __builtin_bit_cast(float, (__builtin_bit_cast(std::int32_t, rate) & kept) | (not_kept & ~kept));
    }
};

// Upper bound of the log2 of the race value; -infinity for tokens that may not be drawn. It uses -log(1 - x) >= x,
// which is tight for the small x of likely winners, and takes a third of the time of the exact value.
struct gumbel_max_bound {
    static constexpr float rounded = 0.01f;  // exceeds the rounding error of the bound
    gumbel_max all;

    IMBREX_KERNEL float operator()(int token, float score) const {
        const float power = (score - all.weight.max_score) * all.weight.inverse;
        const float least_wait = uniform_of(all.stream.bits(static_cast<std::uint32_t>(token)));
        const float bound = (power > -125.0f ? power : -125.0f) - hw::log2(least_wait);
        return all.threshold.keeps(score, token) ? bound : minus_infinity;
    }
    // Whether a token with this bound may reach this race value.
    static IMBREX_KERNEL bool may_reach(float bound, float rate) { return bound >= hw::log2(rate) - rounded; }
};

}  // namespace imbrex::detail
