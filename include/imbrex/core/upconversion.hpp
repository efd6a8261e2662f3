// What becomes of 8-bit elements that are multiplied as 16-bit floats. All of their values are exact there. Those of e4m3 as bf16 are taken
// times 2^-120, which is what their bits are, put where bf16 has its exponent: no instruction is spent on that. What they are
// multiplied with is taken times 2^96 instead, so that products are numbers as others are; and these are to be multiplied with 2^24.
//
// NaN stays NaN, but of e4m3 as bf16, where it becomes 480 times 2^-120.
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

// What the other operand is to be multiplied with beforehand, exactly; and what products are to be multiplied with.
template <class Stored, class To>
inline constexpr float upconversion_prescale = upconverted_by_bits<Stored, To> ? 0x1p96f : 1.0f;
template <class Stored, class To>
inline constexpr float upconversion_postscale = upconverted_by_bits<Stored, To> ? 0x1p24f : 1.0f;

// One element.
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
