// The element and scale types of the block-scaled 4-bit formats (NVFP4, MXFP4): e2m1, a 4-bit float (0, 0.5, 1, 1.5, 2,
// 3, 4, 6 and their negatives; no infinity, no NaN), e2m1x2, a byte with two of them, and ue8m0, a power-of-two scale.
//
// Conversion to e2m1 saturates, as in cvt.rn.satfinite.e2m1x2.f32: infinity becomes 6 of its sign, a NaN becomes +6.
//
//      e2m1x2    7   6 5   4 | 3   2 1   0        ue8m0    7 .. 0
//                s   e e   m | s   e e   m                 e        the value is 2^(e - 127); 0xff is NaN
//                   high          low
//
// The hardware converts these from sm_100a on; elsewhere the software path runs.
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"
#include "imbrex/core/small_float.hpp"

#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#endif

namespace imbrex {

// One value, in the low four bits of a byte; the upper bits are zero.
struct e2m1 : small_float<e2m1, std::uint8_t, std::uint16_t> {
    static constexpr float_format format{.exponent_bits = 2,
                                         .mantissa_bits = 1,
                                         .bias = 1,
                                         .highest = 0x7,
                                         .nan = 0x7,
                                         .has_infinity = false,
                                         .saturates = true};
    using small_float::small_float;

    IMBREX_FN static constexpr e2m1 from_bits(std::uint8_t bits) {
        return small_float::from_bits(static_cast<std::uint8_t>(bits & 0xfU));
    }

    IMBREX_FN static constexpr std::uint8_t encode(float value) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) return __nv_cvt_float_to_fp4(value, __NV_E2M1, cudaRoundNearest);
#endif
        return static_cast<std::uint8_t>(encode_small_float<format>(value));
    }

    IMBREX_FN static constexpr float decode(std::uint8_t bits) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) return __half2float(__nv_cvt_fp4_to_halfraw(bits, __NV_E2M1));
#endif
        return decode_small_float<format>(bits);
    }
};

// Two values in a byte, as in memory.
struct e2m1x2 {
    std::uint8_t bits;

    e2m1x2() = default;
    IMBREX_FN constexpr e2m1x2(e2m1 low, e2m1 high) : bits(static_cast<std::uint8_t>(low.bits | (high.bits << 4))) {}
    IMBREX_FN constexpr explicit e2m1x2(float low, float high) : bits(encode(low, high)) {}

    IMBREX_FN static constexpr e2m1x2 from_bits(std::uint8_t bits) {
        e2m1x2 result{};
        result.bits = bits;
        return result;
    }

    IMBREX_FN constexpr e2m1 low() const { return e2m1::from_bits(bits); }
    IMBREX_FN constexpr e2m1 high() const { return e2m1::from_bits(static_cast<std::uint8_t>(bits >> 4)); }

    IMBREX_FN constexpr explicit operator float_pair() const {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) {
            const float2 values = __half22float2(__nv_cvt_fp4x2_to_halfraw2(bits, __NV_E2M1));
            return {values.x, values.y};
        }
#endif
        return {static_cast<float>(low()), static_cast<float>(high())};
    }

    IMBREX_FN constexpr e2m1x2 operator-() const {
        return from_bits(static_cast<std::uint8_t>(bits ^ 0x88U));
    }

    IMBREX_FN friend constexpr bool operator==(e2m1x2 left, e2m1x2 right) {
        return left.low() == right.low() && left.high() == right.high();
    }

  private:
    IMBREX_FN static constexpr std::uint8_t encode(float low, float high) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) {
            return __nv_cvt_float2_to_fp4x2(make_float2(low, high), __NV_E2M1, cudaRoundNearest);
        }
#endif
        return e2m1x2(e2m1(low), e2m1(high)).bits;
    }
};

// A power of two from 2^-127 to 2^127, without zero and sign. A float is converted by its magnitude: below the range it
// becomes 2^-127, above it (and for infinity) 2^127.
struct ue8m0 {
    std::uint8_t bits;

    ue8m0() = default;
    // Rounds up, as the type of cuda_fp8.h does: a scale that is not too small never makes a value overflow.
    IMBREX_FN constexpr explicit ue8m0(float value) : bits(round_up(value).bits) {}

    IMBREX_FN static constexpr ue8m0 from_bits(std::uint8_t bits) {
        ue8m0 result{};
        result.bits = bits;
        return result;
    }

    IMBREX_FN static constexpr ue8m0 round_up(float value) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) {
            return from_bits(__nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundPosInf));
        }
#endif
        // Subnormal floats are near 2^-127: the lower half of them rounds to 2^-127, the others to 2^-126.
        const std::uint32_t absolute = bits_as<std::uint32_t>(value) & ~float_sign;
        const std::uint32_t exponent = (absolute + 0x7fffffU) >> float_mantissa_bits;
        return saturate(absolute, absolute <= 0x00400000U ? 0 : exponent);
    }

    IMBREX_FN static constexpr ue8m0 round_to_zero(float value) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 1000 && defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
        if (!__builtin_is_constant_evaluated()) {
            return from_bits(__nv_cvt_float_to_e8m0(value, __NV_SATFINITE, cudaRoundZero));
        }
#endif
        const std::uint32_t absolute = bits_as<std::uint32_t>(value) & ~float_sign;
        return saturate(absolute, absolute >> float_mantissa_bits);
    }

    IMBREX_FN constexpr explicit operator float() const {
        const std::uint32_t shifted = static_cast<std::uint32_t>(bits) << float_mantissa_bits;
        // 2^-127 is a subnormal float; 0xff would be infinity.
        const std::uint32_t finite = bits == 0 ? 0x00400000U : shifted;
        return bits_as<float>(is_nan() ? float_nan : finite);
    }

    IMBREX_FN constexpr bool is_nan() const {
        return bits == 0xff;
    }

    IMBREX_FN friend constexpr bool operator==(ue8m0 left, ue8m0 right) {
        return left.bits == right.bits && !left.is_nan();
    }

  private:
    IMBREX_FN static constexpr ue8m0 saturate(std::uint32_t absolute, std::uint32_t exponent) {
        const std::uint32_t finite = exponent < 0xfeU ? exponent : 0xfeU;
        return from_bits(static_cast<std::uint8_t>(absolute > float_infinity ? 0xffU : finite));
    }
};

static_assert(sizeof(e2m1) == 1 && sizeof(e2m1x2) == 1 && sizeof(ue8m0) == 1);

}  // namespace imbrex
