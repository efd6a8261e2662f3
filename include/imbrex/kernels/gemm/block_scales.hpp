// The scales of block_weights (block_weights.hpp): what a row stores for 64 columns of K, and for a super-block of 256.
//
//   k_scales_with_minimums    Q4_K and Q5_K   an 8-bit scale and minimum for each group of 32; fp16 d and e for 256
//                                             weight = d * scale * q - e * minimum
//   k_scales                  Q6_K and Q3_K   a signed 8-bit scale for each group of 16; fp16 d for 256
//                                             weight = d * scale * q
//
// These are the numbers of the files. Products of d and a scale are exact in float.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/small_float.hpp>

#include <cstdint>

namespace imbrex {

namespace detail {
// factor * (byte `number` of a word - Offset), exact for an 11-bit factor. The byte is put into the mantissa of 2^15.
template <int Offset>
IMBREX_KERNEL float times_byte(float factor, std::uint32_t word, int number) {
    const float raised = bits_as<float>(0x47000000U | ((word >> (8 * number) & 0xffU) << 8));
    return (raised - static_cast<float>(32768 + Offset)) * factor;
}
}  // namespace detail

struct k_scales_with_minimums {
    static constexpr int group = 32;
    static constexpr bool has_minimum = true;
    // For 64 columns: two scales in the low bytes and two minimums in the high ones.
    struct row {
        std::uint32_t bits;
    };
    struct super_row {
        fp16 scale, minimum;
    };
    static constexpr row row_of(std::uint8_t scale0, std::uint8_t scale1, std::uint8_t minimum0,
                                std::uint8_t minimum1) {
        return {scale0 | std::uint32_t{scale1} << 8 | std::uint32_t{minimum0} << 16 | std::uint32_t{minimum1} << 24};
    }
    static IMBREX_KERNEL float scale(row of, super_row in, int number) {
        return detail::times_byte<0>(convert<float>(in.scale), of.bits, number);
    }
    static IMBREX_KERNEL float minimum(row of, super_row in, int number) {
        return detail::times_byte<0>(convert<float>(in.minimum), of.bits, 2 + number);
    }
};

struct k_scales {
    static constexpr int group = 16;
    static constexpr bool has_minimum = false;
    // For 64 columns: four scales, each plus 128.
    struct row {
        std::uint32_t bits;
    };
    struct super_row {
        fp16 scale;
    };
    static constexpr row row_of(std::int8_t scale0, std::int8_t scale1, std::int8_t scale2, std::int8_t scale3) {
        const auto raised = [](std::int8_t scale) { return static_cast<std::uint32_t>(scale + 128); };
        return {raised(scale0) | raised(scale1) << 8 | raised(scale2) << 16 | raised(scale3) << 24};
    }
    static IMBREX_KERNEL float scale(row of, super_row in, int number) {
        return detail::times_byte<128>(convert<float>(in.scale), of.bits, number);
    }
};

}  // namespace imbrex
