// splitmix64 (Steele, Lea and Flood, 2014): a one-to-one function of 64 bits whose results look random. Applied to a
// counter it is a random sequence that is the same on every platform.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

// The step of the counter: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t splitmix64_step = 0x9e3779b97f4a7c15U;

constexpr IMBREX_FN std::uint64_t splitmix64(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

}  // namespace imbrex
