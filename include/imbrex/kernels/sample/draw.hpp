// Functions of a score that the last steps of sampling are made of: how much of a sum top_p is, the cut of min_p, and the draw, a
// race: each token that is kept waits for an exponentially distributed time, its weight the rate, and the first one is taken. So
// each is taken with its probability, and nothing has to be known of the others.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/counter_random.hpp>
#include <imbrex/core/exponential.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/sample/options.hpp>

#include <cstdint>
#include <limits>

namespace imbrex::detail {

inline constexpr int all_tokens = std::numeric_limits<int>::max();  // as the last of a cut

// The least whole number that is at least this part of a sum, and more than 0.
IMBREX_FN std::uint64_t enough_of(std::uint64_t sum, float top_p) {
    const double part = static_cast<double>(top_p) * static_cast<double>(sum);
    const auto below = static_cast<std::uint64_t>(part > 0 ? part : 0);
    return static_cast<double>(below) < part || below == 0 ? below + 1 : below;
}

// A cut, and that of min_p if it is the narrower one.
IMBREX_KERNEL sample_cut with_min_p(const sample_cut& cut, const sample_options& options, float most) {
    if (!(options.min_p > 0)) return cut;
    const float least = most + options.temperature * natural_log(options.min_p);
    return least > cut.least ? sample_cut{least, all_tokens} : cut;
}

// How soon a token is there, the larger the sooner; -1 if it may not be drawn.
struct race {
    relative_weight weight;
    sample_cut cut;
    random_stream stream;

    static IMBREX_FN race of(const sample_options& options, float most, const sample_cut& cut) {
        return race{relative_weight::of(most, options.temperature), cut,
                    random_stream::of(options.seed, static_cast<std::uint64_t>(options.position))};
    }
    IMBREX_FN float operator()(int token, float score) const {
        const float rate = weight(score) / exponential_of(stream.bits(static_cast<std::uint32_t>(token)));
        // Bits are chosen, and not one of two ways: compilers make vectors of that.
        const std::int32_t kept = -static_cast<std::int32_t>(cut.keeps(score, token));
        const std::int32_t not_kept = __builtin_bit_cast(std::int32_t, -1.0f);
        return __builtin_bit_cast(float, (__builtin_bit_cast(std::int32_t, rate) & kept) | (not_kept & ~kept));
    }
};

// What the logarithm of such a rate, to the base of 2, is surely not above; -infinity for tokens that may not be drawn. Nobody
// waits less than their random number says, -log(1 - x) >= x, and those who come first hardly longer. It takes a third of the time
// of the rate.
struct race_bound {
    static constexpr float rounded = 0.01f;  // more than what roundings make of it
    race all;

    IMBREX_KERNEL float operator()(int token, float score) const {
        const float power = (score - all.weight.most) * all.weight.inverse;
        const float least_wait = uniform_of(all.stream.bits(static_cast<std::uint32_t>(token)));
        const float bound = (power > -125.0f ? power : -125.0f) - hw::log2(least_wait);
        return all.cut.keeps(score, token) ? bound : nothing_is_less;
    }
    // Whether a token of this bound may be as soon as one of this rate.
    static IMBREX_KERNEL bool may_reach(float bound, float rate) { return bound >= hw::log2(rate) - rounded; }
};

}  // namespace imbrex::detail
