// fp16: IEEE 754 half precision. More precise than bf16, but the largest finite value is 65504. Overflow rounds to
// infinity, as in cvt.rn.f16.f32.
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"
#include "imbrex/core/small_float.hpp"

#if IMBREX_DEVICE_WORLD
#include <cuda_fp16.h>
#endif

namespace imbrex {

struct fp16 : small_float<fp16, std::uint16_t, std::uint32_t> {
    static constexpr float_format format{.exponent_bits = 5,
                                         .mantissa_bits = 10,
                                         .bias = 15,
                                         .highest = 0x7bff,
                                         .nan = 0x7fff,
                                         .has_infinity = true,
                                         .saturates = false};
    using small_float::small_float;

    IMBREX_FN static constexpr std::uint16_t encode(float value) {
#if IMBREX_DEVICE_WORLD
        if (!__builtin_is_constant_evaluated()) return __half_as_ushort(__float2half_rn(value));
#endif
        return static_cast<std::uint16_t>(encode_small_float<format>(value));
    }

    IMBREX_FN static constexpr float decode(std::uint16_t bits) {
#if IMBREX_DEVICE_WORLD
        if (!__builtin_is_constant_evaluated()) return __half2float(__ushort_as_half(bits));
#endif
        return decode_small_float<format>(bits);
    }

    IMBREX_FN static constexpr std::uint32_t encode_pair(float low, float high) {
#if IMBREX_DEVICE_WORLD
        if (!__builtin_is_constant_evaluated()) {
            return bits_as<std::uint32_t>(static_cast<__half2_raw>(__floats2half2_rn(low, high)));
        }
#endif
        return small_float::encode_pair(low, high);
    }
};

static_assert(sizeof(fp16) == 2);

}  // namespace imbrex
