// The device's approximate functions (exp2, log2, reciprocal, tanh) in the host world.
#pragma once

#include <cmath>
#include <cstdint>

namespace imbrex::hw {

inline float exp2(float x) {
    return std::exp2(x);
}
inline float log2(float x) {
    return std::log2(x);
}
inline float reciprocal(float x) {
    return 1.0f / x;
}
inline float tanh(float x) {
    return std::tanh(x);
}
inline float erf(float x) {
    return std::erf(x);
}

inline float abs(float x) {
    return std::fabs(x);
}

// For a number and a NaN, the number.
inline float max(float a, float b) {
    return std::fmax(a, b);
}
inline float min(float a, float b) {
    return std::fmin(a, b);
}
inline int max(int a, int b) {
    return a > b ? a : b;
}
inline int min(int a, int b) {
    return a < b ? a : b;
}

// a * b + c, rounded once.
inline float fma(float a, float b, float c) {
    return std::fma(a, b, c);
}

// On the device, a number that the compiler does not know.
inline int opaque(int number) {
    return number;
}

// On the device, keeps the compiler from deferring work.
inline void settle_sum(float) {}

// Four of the eight bytes of a and b: byte i of the result is number (selector >> 4 i) & 7.
inline std::uint32_t permute_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
    const std::uint64_t both = a | std::uint64_t{b} << 32;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= static_cast<std::uint32_t>(both >> (8 * (selector >> (4 * i) & 7U)) & 0xffU) << (8 * i);
    }
    return result;
}

}  // namespace imbrex::hw
