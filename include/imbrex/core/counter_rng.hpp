// Random numbers that are counted and not drawn one after the other: the bits of a number follow from a seed, a position and the number
// alone. Whoever asks, and in whichever order, gets the same, so that a choice by chance does not depend on how work is shared out.
//
//     const counter_rng stream = counter_rng::of(seed, position);
//     const float waited = exponential_of(stream.bits(token));            // exponentially distributed, mean 1
//
// Good for sampling; not for keeping secrets.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_math.hpp>

#include <cstdint>

namespace imbrex {

struct counter_rng {
    std::uint32_t first, second;

    static IMBREX_FN counter_rng of(std::uint64_t seed, std::uint64_t position) {
        const std::uint64_t both = mixed(mixed(seed + 0x9e3779b97f4a7c15U) + position);
        return counter_rng{static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
    }

    // The halves of the key come in at two places: streams are not one sequence that is entered at different numbers.
    IMBREX_FN std::uint32_t bits(std::uint32_t number) const {
        std::uint32_t x = number * 0x9e3779b9U + first;
        x = (x ^ (x >> 16)) * 0x7feb352dU;
        x = (x ^ (x >> 15)) * 0x846ca68bU;
        x = (x ^ (x >> 16)) + second;
        x = (x ^ (x >> 16)) * 0x21f0aaadU;
        x = (x ^ (x >> 15)) * 0x735a2d97U;
        return x ^ (x >> 15);
    }

  private:
    static IMBREX_FN std::uint64_t mixed(std::uint64_t x) {
        x += 0x9e3779b97f4a7c15U;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
        return x ^ (x >> 31);
    }
};

// 32 random bits as a number in (0, 1]: in the middle of one of 2^32 parts, as well as a float can say that.
IMBREX_FN float uniform_of(std::uint32_t bits) {
    return (static_cast<float>(bits) + 0.5f) * 0x1p-32f;
}

// -log(1 - uniform): how long one waits for what happens once in a unit of time. Never 0. Short times, which decide who is first among
// many, are as precise as floats are: 1 - uniform is rounded, and what rounding took away is put back.
IMBREX_FN float exponential_of(std::uint32_t bits) {
    const float uniform = uniform_of(bits);
    // A multiple of 2^-24 or more, to which what is added, so that it is never 0, makes no difference that could be seen.
    const float left = (1.0f - uniform) + 0x1p-33f;
    return (uniform - (1.0f - left)) / left - fast_log(left);
}

}  // namespace imbrex
