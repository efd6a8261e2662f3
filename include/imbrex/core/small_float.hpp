// Floating-point formats narrower than float: the arithmetic that bf16, fp16, e4m3, e5m2 and e2m1 share.
//
// A format is data (float_format). One encode and one decode serve all formats: at compile time, on the host, and on
// devices without an instruction for the conversion. Results equal those of NVIDIA's cvt instructions bit for bit:
// round to nearest even, subnormals kept, every NaN becomes the canonical NaN. Both functions are straight-line integer
// code, so compilers vectorise loops over them. They test bits and never compare floats, so they do not depend on
// flush-to-zero.
//
//      sign | exponent | mantissa          magnitude: the bits below the sign, which order as the values do
//        1  |    E     |    M
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"

namespace imbrex {

// std::bit_cast. nvcc allows it in device code only under an experimental flag; the builtin needs no flag.
template <class To, class From>
IMBREX_FN constexpr To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits_as: both types must have the same size");
    return __builtin_bit_cast(To, from);
}

// Both operands are computed and no branch remains. Given `?:`, GCC sinks a float operation into the arm that uses it,
// finds that it might trap there, and does not vectorise the loop.
IMBREX_FN constexpr std::uint32_t select_bits(bool condition, std::uint32_t chosen, std::uint32_t otherwise) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
    return (chosen & mask) | (otherwise & ~mask);
}

struct float_format {
    int exponent_bits;
    int mantissa_bits;
    int bias;
    std::uint32_t highest;  // magnitude of the largest finite value; infinity, if the format has it, is the next one
    std::uint32_t nan;      // the result for a NaN; e2m1 has no NaN, and 0x7 is its largest value
    bool has_infinity;
    bool saturates;  // overflow becomes `highest` instead of infinity

    IMBREX_FN constexpr std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
    IMBREX_FN constexpr std::uint32_t largest_number() const { return has_infinity ? highest + 1 : highest; }
    IMBREX_FN constexpr std::uint32_t overflow() const { return saturates ? highest : highest + 1; }
    IMBREX_FN constexpr bool has_nan() const { return sign() - 1 > largest_number(); }
};

inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_nan = 0x7fffffffU;  // the canonical NaN
inline constexpr int float_mantissa_bits = 23;
inline constexpr int float_bias = 127;

template <float_format Format>
IMBREX_FN constexpr bool is_small_nan(std::uint32_t bits) {
    constexpr std::uint32_t magnitude = Format.sign() - 1, largest = Format.largest_number();
    return (bits & magnitude) > largest;
}

template <float_format Format>
IMBREX_FN constexpr std::uint32_t encode_small_float(float value) {
    constexpr int dropped = float_mantissa_bits - Format.mantissa_bits;
    const std::uint32_t bits = bits_as<std::uint32_t>(value);
    const std::uint32_t absolute = bits & ~float_sign;
    // A constant expression must not compute with a NaN, even if the result is unused.
    if (__builtin_is_constant_evaluated() && absolute > float_infinity) return Format.nan;

    // Adding just under half (plus one if the last kept bit is odd) carries exactly when round-to-nearest-even rounds
    // up. A carry out of the mantissa increments the exponent. Below the smallest normal the sum wraps and is unused.
    constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_bias - Format.bias) << float_mantissa_bits;
    const std::uint32_t odd = (absolute >> dropped) & 1U;
    std::uint32_t magnitude = (absolute - rebias + ((1U << (dropped - 1)) - 1U) + odd) >> dropped;

    // A format with float's exponent range is done: its subnormals are float's, and rounding past the largest value
    // gives infinity.
    if constexpr (Format.bias != float_bias) {
        // Subnormals are equally spaced. Adding a power of two whose last bit is worth one step makes the float adder
        // round to a whole number of steps.
        constexpr std::uint32_t smallest_normal = rebias + (1U << float_mantissa_bits);
        constexpr std::uint32_t anchor = static_cast<std::uint32_t>(float_bias + 1 - Format.bias + dropped)
                                         << float_mantissa_bits;
        const float stepped = bits_as<float>(absolute) + bits_as<float>(anchor);
        magnitude = select_bits(absolute < smallest_normal, bits_as<std::uint32_t>(stepped) - anchor, magnitude);
        constexpr std::uint32_t overflow = Format.overflow();
        magnitude = select_bits(magnitude < overflow, magnitude, overflow);
    }
    const std::uint32_t sign = (bits & float_sign) >> (31 - Format.exponent_bits - Format.mantissa_bits);
    return select_bits(absolute > float_infinity, Format.nan, magnitude | sign);
}

template <float_format Format>
IMBREX_FN constexpr float decode_small_float(std::uint32_t bits) {
    constexpr int added = float_mantissa_bits - Format.mantissa_bits;
    // A format with float's exponent range: a shift is the whole conversion and keeps the payload of a NaN.
    if constexpr (Format.bias == float_bias) {
        return bits_as<float>(bits << added);
    } else {
        constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_bias - Format.bias) << float_mantissa_bits;
        constexpr std::uint32_t smallest_normal = rebias + (1U << float_mantissa_bits);
        constexpr std::uint32_t sign = Format.sign();
        const std::uint32_t magnitude = bits & (sign - 1);
        // A subnormal has no implicit one: add the implicit one of the smallest normal, then subtract it exactly.
        const float lifted = bits_as<float>((magnitude << added) + smallest_normal);
        const float subnormal = lifted - bits_as<float>(smallest_normal);
        std::uint32_t result = select_bits(magnitude < (1U << Format.mantissa_bits), bits_as<std::uint32_t>(subnormal),
                                           (magnitude << added) + rebias);
        if constexpr (Format.has_infinity) result = select_bits(magnitude > Format.highest, float_infinity, result);
        result |= (bits & sign) << (31 - Format.exponent_bits - Format.mantissa_bits);
        if constexpr (Format.has_nan()) result = select_bits(is_small_nan<Format>(bits), float_nan, result);
        return bits_as<float>(result);
    }
}

// The values of a 32-bit register: two, the first in the low half, or four.
struct float_pair {
    float low, high;
};

struct float_quad {
    float values[4];
};

// The common base of the formats. Self defines `format`, and its own encode and decode if the hardware converts. The
// default constructor leaves the value uninitialised, as shared memory and register tiles are.
template <class Self, class Storage, class PairStorage>
struct small_float {
    Storage bits;

    small_float() = default;
    IMBREX_FN constexpr explicit small_float(float value) : bits(Self::encode(value)) {}
    IMBREX_FN constexpr explicit operator float() const { return Self::decode(bits); }

    IMBREX_FN static constexpr Self from_bits(Storage bits) {
        Self result{};
        result.bits = bits;
        return result;
    }

    IMBREX_FN constexpr bool is_nan() const { return is_small_nan<Self::format>(bits); }

    IMBREX_FN constexpr Self operator-() const {
        constexpr std::uint32_t sign = Self::format.sign();
        return from_bits(static_cast<Storage>(bits ^ sign));
    }

    // Compares numbers: zeros of both signs are equal, and a NaN equals nothing.
    IMBREX_FN friend constexpr bool operator==(Self left, Self right) {
        constexpr std::uint32_t magnitude = Self::format.sign() - 1;
        const bool zeros = ((left.bits | right.bits) & magnitude) == 0;
        return zeros || (left.bits == right.bits && !left.is_nan());
    }

    // Self overrides these if the hardware converts two at once.
    IMBREX_FN static constexpr PairStorage encode_pair(float low, float high) {
        return static_cast<PairStorage>(Self::encode(low) |
                                        (static_cast<PairStorage>(Self::encode(high)) << (8 * sizeof(Storage))));
    }
    IMBREX_FN static constexpr float_pair decode_pair(PairStorage pair) {
        return {Self::decode(static_cast<Storage>(pair)),
                Self::decode(static_cast<Storage>(pair >> (8 * sizeof(Storage))))};
    }
};

// Packs values into a 32-bit register of a fragment, the first value in the lowest bits.
template <class T>
IMBREX_FN constexpr std::uint32_t pack2(float low, float high) {
    static_assert(sizeof(T) == 2, "pack2: two values must fill a 32-bit word; use it for bf16 and fp16");
    return T::encode_pair(low, high);
}

template <class T>
IMBREX_FN constexpr float_pair unpack2(std::uint32_t word) {
    static_assert(sizeof(T) == 2, "unpack2: two values must fill a 32-bit word; use it for bf16 and fp16");
    return T::decode_pair(word);
}

template <class T>
IMBREX_FN constexpr std::uint32_t pack4(float first, float second, float third, float fourth) {
    static_assert(sizeof(T) == 1, "pack4: four values must fill a 32-bit word; use it for e4m3 and e5m2");
    return T::encode_pair(first, second) | (static_cast<std::uint32_t>(T::encode_pair(third, fourth)) << 16);
}

template <class T>
IMBREX_FN constexpr float_quad unpack4(std::uint32_t word) {
    static_assert(sizeof(T) == 1, "unpack4: four values must fill a 32-bit word; use it for e4m3 and e5m2");
    const float_pair front = T::decode_pair(static_cast<std::uint16_t>(word));
    const float_pair back = T::decode_pair(static_cast<std::uint16_t>(word >> 16));
    return {{front.low, front.high, back.low, back.high}};
}

}  // namespace imbrex
