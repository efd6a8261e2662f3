// The two 8-bit floating-point types (FP8): e4m3, the more precise (largest 448, no infinity, one NaN per sign), and
// e5m2, the wider (largest 57344, infinity and NaNs as in IEEE 754). Conversion to them saturates, as in
// cvt.rn.satfinite: overflow and infinity become the largest finite value, a NaN of either sign becomes 0x7f.
//
// The hardware converts fp8 from sm_89 on. Older devices run the software path, which is faster than the emulation in
// double precision that <cuda_fp8.h> has for them.
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"
#include "imbrex/core/fp16.hpp"
#include "imbrex/core/small_float.hpp"

#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
#include <cuda_fp8.h>
#endif

namespace imbrex {

struct e4m3 : small_float<e4m3, std::uint8_t, std::uint16_t> {
    static constexpr float_format format{.exponent_bits = 4,
                                         .mantissa_bits = 3,
                                         .bias = 7,
                                         .highest = 0x7e,
                                         .nan = 0x7f,
                                         .has_infinity = false,
                                         .saturates = true};
    using small_float::small_float;

    IMBREX_FN static constexpr std::uint8_t encode(float value) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
#endif
        return static_cast<std::uint8_t>(encode_small_float<format>(value));
    }

    IMBREX_FN static constexpr float decode(std::uint8_t bits) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) return __half2float(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3));
#endif
        return decode_small_float<format>(bits);
    }

    IMBREX_FN static constexpr std::uint16_t encode_pair(float low, float high) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) {
            return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
        }
#endif
        return small_float::encode_pair(low, high);
    }

    IMBREX_FN static constexpr float_pair decode_pair(std::uint16_t pair) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) {
            const float2 values = __half22float2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3));
            return {values.x, values.y};
        }
#endif
        return small_float::decode_pair(pair);
    }
};

struct e5m2 : small_float<e5m2, std::uint8_t, std::uint16_t> {
    static constexpr float_format format{.exponent_bits = 5,
                                         .mantissa_bits = 2,
                                         .bias = 15,
                                         .highest = 0x7b,
                                         .nan = 0x7f,
                                         .has_infinity = true,
                                         .saturates = true};
    using small_float::small_float;

    IMBREX_FN static constexpr std::uint8_t encode(float value) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2);
#endif
        return static_cast<std::uint8_t>(encode_small_float<format>(value));
    }

    // An e5m2 is the upper half of an fp16, so every device can convert it.
    IMBREX_FN static constexpr float decode(std::uint8_t bits) {
        return fp16::decode(static_cast<std::uint16_t>(bits << 8));
    }

    IMBREX_FN static constexpr std::uint16_t encode_pair(float low, float high) {
#if IMBREX_DEVICE_WORLD && __CUDA_ARCH__ >= 890
        if (!__builtin_is_constant_evaluated()) {
            return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E5M2);
        }
#endif
        return small_float::encode_pair(low, high);
    }
};

static_assert(sizeof(e4m3) == 1 && sizeof(e5m2) == 1);

}  // namespace imbrex
