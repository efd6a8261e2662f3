// A counter-based random number generator, as Philox is: the bits of a number depend only on a seed, a position and the
// counter. The result is the same in any order and for any distribution of the work over threads.
//
//     const counter_rng stream = counter_rng::of(seed, position);
//     const float delay = exponential_of(stream.bits(token));             // exponentially distributed, mean 1
//
// For sampling, not for cryptography.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_math.hpp>
#include <imbrex/core/splitmix64.hpp>

#include <cstdint>

namespace imbrex {

struct counter_rng {
    std::uint32_t first, second;

    static IMBREX_FN counter_rng of(std::uint64_t seed, std::uint64_t position) {
        const std::uint64_t both = splitmix64(splitmix64(seed + 2 * splitmix64_step) + position + splitmix64_step);
        return counter_rng{static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
    }

    // The two halves of the key enter at different points, so streams are not shifted copies of one sequence.
    IMBREX_FN std::uint32_t bits(std::uint32_t number) const {
        std::uint32_t x = number * 0x9e3779b9U + first;
        x = (x ^ (x >> 16)) * 0x7feb352dU;
        x = (x ^ (x >> 15)) * 0x846ca68bU;
        x = (x ^ (x >> 16)) + second;
        x = (x ^ (x >> 16)) * 0x21f0aaadU;
        x = (x ^ (x >> 15)) * 0x735a2d97U;
        return x ^ (x >> 15);
    }
};

// 32 random bits as a number in (0, 1]: the midpoint of one of 2^32 intervals, to float precision.
IMBREX_FN float uniform_of(std::uint32_t bits) {
    return (static_cast<float>(bits) + 0.5f) * 0x1p-32f;
}

// -log(1 - uniform), exponentially distributed with mean 1, never 0. Small values, which decide the minimum over many
// samples, have full float precision: the rounding error of 1 - uniform is added back.
IMBREX_FN float exponential_of(std::uint32_t bits) {
    const float uniform = uniform_of(bits);
    // At least 2^-24; adding 2^-33 keeps it from being 0 and has no visible effect otherwise.
    const float left = (1.0f - uniform) + 0x1p-33f;
    return (uniform - (1.0f - left)) / left - fast_log(left);
}

}  // namespace imbrex
