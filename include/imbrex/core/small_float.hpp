// Floating-point formats narrower than float: the arithmetic that bf16, fp16, e4m3, e5m2 and e2m1 share.
//
// A format is data (float_format), and one encode and one decode serve all of them, at compile time, on the host, and
// on a device that has no instruction for the conversion. They give bit for bit what NVIDIA's cvt instructions give:
// rounding to nearest even, subnormals kept, a NaN of any sign or payload made the one canonical NaN. Both are straight
// lines of integer operations and selects, so that a compiler vectorises a loop over them, and neither depends on
// whether subnormal floats are flushed to zero: they test bits, never compare floats.
//
//      sign | exponent | mantissa          magnitude: the bits below the sign, which order as the values do
//        1  |    E     |    M
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"

namespace imbrex {

// std::bit_cast, which nvcc lets device code call only under an experimental flag; the builtin needs none.
template <class To, class From>
IMBREX_FN constexpr To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "bits_as: both types must have the same size");
    return __builtin_bit_cast(To, from);
}

// Both operands are computed and no branch is left, whatever the compiler: given `?:`, GCC sinks a float operation into
// the arm that uses it, finds there that it might trap, and gives up vectorising the loop.
IMBREX_FN constexpr std::uint32_t select_bits(bool condition, std::uint32_t chosen, std::uint32_t otherwise) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(condition);
    return (chosen & mask) | (otherwise & ~mask);
}

struct float_format {
    int exponent_bits;
    int mantissa_bits;
    int bias;
    std::uint32_t highest;  // magnitude of the largest finite value; infinity, where there is one, comes next
    std::uint32_t nan;      // what a NaN becomes; 0x7 in e2m1, which has no NaN, is its largest value
    bool has_infinity;
    bool saturates;  // what is too large becomes `highest`, and not infinity

    IMBREX_FN constexpr std::uint32_t sign() const { return 1U << (exponent_bits + mantissa_bits); }
    IMBREX_FN constexpr std::uint32_t largest_number() const { return has_infinity ? highest + 1 : highest; }
    IMBREX_FN constexpr std::uint32_t overflow() const { return saturates ? highest : highest + 1; }
    IMBREX_FN constexpr bool has_nan() const { return sign() - 1 > largest_number(); }
};

inline constexpr std::uint32_t float_sign = 0x80000000U;
inline constexpr std::uint32_t float_infinity = 0x7f800000U;
inline constexpr std::uint32_t float_nan = 0x7fffffffU;  // the canonical one
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
    // A constant expression may not compute with a NaN, not even to throw the result away.
    if (__builtin_is_constant_evaluated() && absolute > float_infinity) return Format.nan;

    // Adding just under half, and a little more if the last kept bit is odd, carries exactly when nearest-even rounds
    // up; a carry out of the mantissa steps the exponent, as it should. Wraps below the smallest normal, where it is
    // not used.
    constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_bias - Format.bias) << float_mantissa_bits;
    const std::uint32_t odd = (absolute >> dropped) & 1U;
    std::uint32_t magnitude = (absolute - rebias + ((1U << (dropped - 1)) - 1U) + odd) >> dropped;

    // With float's own exponent range nothing else can happen: float's subnormals are the format's, and rounding past
    // the largest value arrives at infinity.
    if constexpr (Format.bias != float_bias) {
        // Below the smallest normal the steps are equal. Added to a power of two whose last bit is worth one step, the
        // float adder itself rounds to a whole number of them.
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
    // Float with fewer bits of mantissa: a shift is the whole conversion, and keeps a NaN's payload.
    if constexpr (Format.bias == float_bias) {
        return bits_as<float>(bits << added);
    } else {
        constexpr std::uint32_t rebias = static_cast<std::uint32_t>(float_bias - Format.bias) << float_mantissa_bits;
        constexpr std::uint32_t smallest_normal = rebias + (1U << float_mantissa_bits);
        constexpr std::uint32_t sign = Format.sign();
        const std::uint32_t magnitude = bits & (sign - 1);
        // A subnormal has no hidden one: give it the smallest normal's, then subtract that again, exactly.
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

// Two values of one register, the first in the low half; and four.
struct float_pair {
    float low, high;
};

struct float_quad {
    float values[4];
};

// What the formats' types have in common. Self names its format and its own encode and decode, which use the hardware
// where they can. Left uninitialised by default, because shared memory and register tiles are.
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

    // As numbers: zeros of both signs are equal, and a NaN equals nothing.
    IMBREX_FN friend constexpr bool operator==(Self left, Self right) {
        constexpr std::uint32_t magnitude = Self::format.sign() - 1;
        const bool zeros = ((left.bits | right.bits) & magnitude) == 0;
        return zeros || (left.bits == right.bits && !left.is_nan());
    }

    // Self hides these where the hardware converts two at once.
    IMBREX_FN static constexpr PairStorage encode_pair(float low, float high) {
        return static_cast<PairStorage>(Self::encode(low) |
                                        (static_cast<PairStorage>(Self::encode(high)) << (8 * sizeof(Storage))));
    }
    IMBREX_FN static constexpr float_pair decode_pair(PairStorage pair) {
        return {Self::decode(static_cast<Storage>(pair)),
                Self::decode(static_cast<Storage>(pair >> (8 * sizeof(Storage))))};
    }
};

// A register's worth of values: what one lane of a register tile keeps, the first value in the lowest bits.
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
