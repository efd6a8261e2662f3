// bf16: the upper half of a float. It has float's range and three decimal digits of precision; the usual element type
// of activations and weights. Overflow rounds to infinity, as in cvt.rn.bf16.f32.
#pragma once

#include <cstdint>

#include "imbrex/core/config.hpp"
#include "imbrex/core/small_float.hpp"

#if IMBREX_DEVICE_WORLD
#include <cuda_bf16.h>
#endif

namespace imbrex {

struct bf16 : small_float<bf16, std::uint16_t, std::uint32_t> {
    static constexpr float_format format{.exponent_bits = 8,
                                         .mantissa_bits = 7,
                                         .bias = 127,
                                         .highest = 0x7f7f,
                                         .nan = 0x7fff,
                                         .has_infinity = true,
                                         .saturates = false};
    using small_float::small_float;

    IMBREX_FN static constexpr std::uint16_t encode(float value) {
#if IMBREX_DEVICE_WORLD
        if (!__builtin_is_constant_evaluated()) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#endif
        return static_cast<std::uint16_t>(encode_small_float<format>(value));
    }

    // A shift is the fastest conversion in both worlds.
    IMBREX_FN static constexpr float decode(std::uint16_t bits) {
        return decode_small_float<format>(bits);
    }

    IMBREX_FN static constexpr std::uint32_t encode_pair(float low, float high) {
#if IMBREX_DEVICE_WORLD
        if (!__builtin_is_constant_evaluated()) {
            return bits_as<std::uint32_t>(static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(low, high)));
        }
#endif
        return small_float::encode_pair(low, high);
    }
};

static_assert(sizeof(bf16) == 2);

}  // namespace imbrex
