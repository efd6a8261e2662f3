// Upconversion of 8-bit operands (e4m3, int8) to bf16 or fp16 for the tensor cores. Every value is exact in the 16-bit
// type. e4m3 to bf16 costs no conversion instruction: its bits are moved to bf16's exponent and mantissa fields, which
// yields the value times 2^-120. The other operand is multiplied by 2^96 beforehand, so that products stay normal
// numbers, and the products by 2^24 afterwards.
//
// NaN stays NaN, except e4m3 as bf16, where it becomes 480 times 2^-120.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class Stored, class To>
concept upconverts_to = (std::is_same_v<Stored, e4m3> ||
                         std::is_same_v<Stored, std::int8_t>)&&(std::is_same_v<To, bf16> || std::is_same_v<To, fp16>);

template <class Stored, class To>
inline constexpr bool upconverted_by_bits = std::is_same_v<Stored, e4m3>&& std::is_same_v<To, bf16>;

// Exact factor for the other operand before the product, and factor for the products.
template <class Stored, class To>
inline constexpr float upconversion_prescale = upconverted_by_bits<Stored, To> ? 0x1p96f : 1.0f;
template <class Stored, class To>
inline constexpr float upconversion_postscale = upconverted_by_bits<Stored, To> ? 0x1p24f : 1.0f;

// Upconverts one element.
template <class To, upconverts_to<To> Stored>
IMBREX_FN To upconvert(Stored stored) {
    if constexpr (upconverted_by_bits<Stored, To>) {
        const unsigned bits = stored.bits;
        return bf16::from_bits(static_cast<std::uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 4));
    } else {
        return convert<To>(convert<float>(stored));
    }
}

}  // namespace imbrex
