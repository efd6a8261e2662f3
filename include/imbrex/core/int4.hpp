// Small integers: rounding a float to int32, int8 or int4, and int4x2, a byte with two signed 4-bit values.
//
// All conversions round to nearest even, saturate, and convert NaN to zero, as cvt.rni.sat.s8.f32 does.
//
//      int4x2    7 6 5 4 | 3 2 1 0        two's complement, -8 to 7
//                  high      low
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"
#include "imbrex/core/small_float.hpp"

namespace imbrex {

IMBREX_FN constexpr std::int32_t clamp_integer(std::int32_t value, std::int32_t lowest, std::int32_t highest) {
    const std::int32_t raised = value < lowest ? lowest : value;
    return raised > highest ? highest : raised;
}

IMBREX_FN constexpr std::int32_t to_int32(double value) {
    // Detects NaN by its bits, so that a build with -ffinite-math-only still returns zero.
    if ((bits_as<std::uint64_t>(value) & 0x7fffffffffffffffULL) > 0x7ff0000000000000ULL) return 0;
    // Adding 1.5 * 2^52 rounds to an integer; the low bits of the sum are that integer in two's complement.
    constexpr double anchor = 6755399441055744.0;
    const double raised = value < -2147483648.0 ? -2147483648.0 : value;
    const double clamped = raised > 2147483647.0 ? 2147483647.0 : raised;
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(bits_as<std::uint64_t>(clamped + anchor)));
}

IMBREX_FN constexpr std::int32_t to_int32(float value) {
#if IMBREX_DEVICE_WORLD
    if (!__builtin_is_constant_evaluated()) return __float2int_rn(value);
#endif
    return to_int32(static_cast<double>(value));
}

// Rounds and saturates to [Lowest, Highest], a range of at most 2^22 to either side.
template <std::int32_t Lowest, std::int32_t Highest>
IMBREX_FN constexpr std::int32_t to_small_integer(float value) {
#if IMBREX_DEVICE_WORLD
    if (!__builtin_is_constant_evaluated()) return clamp_integer(__float2int_rn(value), Lowest, Highest);
#endif
    // As to_int32, but in float: half the registers on the device, twice the SIMD lanes on the host. The sum is exact
    // up to 2^22; larger values saturate by their sign.
    constexpr float anchor = 12582912.0F;
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t absolute = bits & ~float_sign;
    if (__builtin_is_constant_evaluated() && absolute > float_infinity) return 0;
    const std::uint32_t sum = bits_as<std::uint32_t>(value + anchor) - bits_as<std::uint32_t>(anchor);
    const std::int32_t rounded = clamp_integer(static_cast<std::int32_t>(sum), Lowest, Highest);
    const std::int32_t saturated = absolute > float_infinity ? 0 : bits >= float_sign ? Lowest : Highest;
    const bool small = absolute < bits_as<std::uint32_t>(4194304.0F);
    return static_cast<std::int32_t>(
        select_bits(small, static_cast<std::uint32_t>(rounded), static_cast<std::uint32_t>(saturated)));
}

IMBREX_FN constexpr std::int8_t to_int8(float value) {
    return static_cast<std::int8_t>(to_small_integer<-128, 127>(value));
}

// A 4-bit value in a byte.
IMBREX_FN constexpr std::int8_t to_int4(float value) {
    return static_cast<std::int8_t>(to_small_integer<-8, 7>(value));
}

struct int4x2 {
    std::uint8_t bits;

    int4x2() = default;
    IMBREX_FN constexpr explicit int4x2(float low, float high) : bits(pack(to_int4(low), to_int4(high))) {}

    // Saturates, so the other value of the byte is not disturbed.
    IMBREX_FN static constexpr int4x2 from_values(std::int32_t low, std::int32_t high) {
        return from_bits(pack(clamp_integer(low, -8, 7), clamp_integer(high, -8, 7)));
    }

    IMBREX_FN static constexpr int4x2 from_bits(std::uint8_t bits) {
        int4x2 result{};
        result.bits = bits;
        return result;
    }

    // Shifts to the top of the byte and back, which extends the sign.
    IMBREX_FN constexpr std::int8_t low() const {
        return static_cast<std::int8_t>(static_cast<std::int8_t>(static_cast<std::uint8_t>(bits << 4)) >> 4);
    }
    IMBREX_FN constexpr std::int8_t high() const {
        return static_cast<std::int8_t>(static_cast<std::int8_t>(bits) >> 4);
    }

    IMBREX_FN constexpr explicit operator float_pair() const {
        return {static_cast<float>(low()), static_cast<float>(high())};
    }

    // -8 has no negative in four bits and becomes 7.
    IMBREX_FN constexpr int4x2 operator-() const { return from_values(-low(), -high()); }

    IMBREX_FN friend constexpr bool operator==(int4x2 left, int4x2 right) { return left.bits == right.bits; }

  private:
    IMBREX_FN static constexpr std::uint8_t pack(std::int32_t low, std::int32_t high) {
        return static_cast<std::uint8_t>((static_cast<std::uint32_t>(low) & 0xfU) |
                                         ((static_cast<std::uint32_t>(high) & 0xfU) << 4));
    }
};

static_assert(sizeof(int4x2) == 1);

}  // namespace imbrex
