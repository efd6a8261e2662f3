// The scales of block_weights (block_weights.hpp): what a row stores for 64 columns of K, and for a super-block.
//
//   k_scales_with_minimums      Q4_K and Q5_K      an 8-bit scale and minimum for each group of 32; fp16 d and e for 256
//                                                  weight = d * scale * q - e * minimum
//   q2_k_scales                 Q2_K               the same with 4 bits, for each group of 16
//   k_scales                    Q6_K and Q3_K      a signed 8-bit scale for each group of 16; fp16 d for 256
//                                                  weight = d * scale * q
//   half_scales_with_minimums   Q5_1, Q5_0, Q4_1   an fp16 scale and minimum for each group of 32
//                                                  weight = scale * q - minimum
//
// These are the numbers of the files. Products of d and a scale are exact in float.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/small_float.hpp>
#include <imbrex/hw/math.hpp>

#include <cstdint>

namespace imbrex {

namespace detail {
// factor * (integer - Offset), exact for a factor of 11 bits and an integer of 8: the integer is put into the mantissa of
// 2^15.
template <int Offset>
IMBREX_KERNEL float times_integer(float factor, std::uint32_t integer) {
    return (bits_as<float>(0x47000000U | integer << 8) - static_cast<float>(32768 + Offset)) * factor;
}
// The same with a byte of a word.
template <int Offset>
IMBREX_KERNEL float times_byte(float factor, std::uint32_t word, int number) {
    return times_integer<Offset>(factor, word >> (8 * number) & 0xffU);
}
// The same in fewer instructions and with more registers: the product of the factor and 2^15 is kept for all groups.
IMBREX_KERNEL float times_byte_by_fma(float factor, std::uint32_t word, int number) {
    const std::uint32_t raised = hw::permute_bytes(word, 0x47000000U, 0x7504U | static_cast<unsigned>(number) << 4);
    return hw::fma(bits_as<float>(raised), factor, factor * -32768.0f);
}
}  // namespace detail

struct k_scales_with_minimums {
    static constexpr int group = 32, super_block = 256;
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
        return detail::times_byte_by_fma(convert<float>(in.scale), of.bits, number);
    }
    static IMBREX_KERNEL float minimum(row of, super_row in, int number) {
        return detail::times_byte_by_fma(convert<float>(in.minimum), of.bits, 2 + number);
    }
};

struct k_scales {
    static constexpr int group = 16, super_block = 256;
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

struct q2_k_scales {
    static constexpr int group = 16, super_block = 256;
    static constexpr bool has_minimum = true;
    // For 64 columns: four bytes of a scale, the low bits, and a minimum, as in the file.
    struct row {
        std::uint32_t bits;
    };
    using super_row = k_scales_with_minimums::super_row;
    static IMBREX_KERNEL float scale(row of, super_row in, int number) {
        return detail::times_integer<0>(convert<float>(in.scale), of.bits >> (8 * number) & 0xfU);
    }
    static IMBREX_KERNEL float minimum(row of, super_row in, int number) {
        return detail::times_integer<0>(convert<float>(in.minimum), of.bits >> (8 * number + 4) & 0xfU);
    }
};

struct half_scales_with_minimums {
    static constexpr int group = 32, super_block = 64;
    static constexpr bool has_minimum = true;
    struct row {
        fp16 scales[2];
    };
    struct super_row {
        fp16 minimums[2];
    };
    static IMBREX_KERNEL float scale(row of, super_row, int number) { return convert<float>(of.scales[number]); }
    static IMBREX_KERNEL float minimum(row, super_row in, int number) { return convert<float>(in.minimums[number]); }
};

}  // namespace imbrex
