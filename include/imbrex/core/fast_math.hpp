// exp2 and log as polynomials: the same few multiplications in both worlds. Compilers vectorise them, unlike calls of
// the C library. The relative error is below 3e-7.
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

// 2^x for x up to 125; 2^-125 for x below -125.
IMBREX_FN float fast_exp2(float x) {
    const float limited = x > -125.0f ? x : -125.0f;
    // Adding it leaves the nearest integer in the lowest bits.
    constexpr float rounder = 12582912.0f;
    const float shifted = limited + rounder;
    const float r = limited - (shifted - rounder);
    const std::int32_t whole = __builtin_bit_cast(std::int32_t, shifted) - __builtin_bit_cast(std::int32_t, rounder);
    float power = 1.5403530e-4f;  // ln(2)^n / n!
    power = power * r + 1.3333558e-3f;
    power = power * r + 9.6181291e-3f;
    power = power * r + 5.5504109e-2f;
    power = power * r + 2.4022651e-1f;
    power = power * r + 6.9314718e-1f;
    power = power * r + 1.0f;
    return __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, power) + whole * (1 << 23));
}

// For a positive, normal number. Exactly 0 for 1.
IMBREX_FN float fast_log(float x) {
    constexpr std::int32_t root_of_half = 0x3f3504f3;
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, x);
    const std::int32_t exponent = (bits - root_of_half) >> 23;
    const float mantissa = __builtin_bit_cast(float, bits - exponent * (1 << 23));  // from sqrt(1/2) to sqrt(2)
    const float f = mantissa - 1.0f;
    const float z = f / (2.0f + f);  // log(mantissa) = 2 atanh(z)
    const float square = z * z;
    float series = 0.22222222f;
    series = series * square + 0.28571429f;
    series = series * square + 0.4f;
    series = series * square + 0.66666667f;
    series = series * square + 2.0f;
    return static_cast<float>(exponent) * 0.69314718f + z * series;
}

}  // namespace imbrex
