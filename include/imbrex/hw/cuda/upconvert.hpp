// Loads 8-bit operands from shared memory and upconverts them to 16-bit operands of mma.sync. ldmatrix moves 16-bit
// units, so a lane receives adjacent bytes in a word; it upconverts the even and the odd bytes of each word:
//
//   by rows      a word is columns 4t to 4t + 3 of a row: columns 4t and 4t + 2 become the lane's pair in the first
//                eight columns, 4t + 1 and 4t + 3 the pair in the second eight
//   by columns   a word is columns 2g and 2g + 1 of two rows: even columns become the first eight, odd ones the second
//
// Every 16 columns are therefore permuted: position 2t + i of the first eight is column 4t + 2i, of the second eight 4t
// + 2i + 1. Along the reduction dimension this does not matter if both operands are permuted alike. As columns of a
// result, they are unpermuted once, when the result is complete.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/cuda/copy_register.hpp>
#include <imbrex/hw/cuda/dequantise.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

// Bytes 0 and 2 of a word as 16-bit floats, and bytes 1 and 3.
struct upconverted_word {
    std::uint32_t even, odd;
};

// The bits of two e4m3, moved to the exponent and mantissa fields of a 16-bit float, are the values times a power of
// two. As fp16 they are multiplied by its inverse; 1 is added to the last bit before, so that a carry marks a NaN.
template <class To>
IMBREX_KERNEL std::uint32_t upconvert_e4m3(std::uint32_t magnitudes, std::uint32_t signs) {
    using pairs = half2_arithmetic<To>;
    const std::uint32_t numbers = pairs::merge(signs, pairs::sign, magnitudes);
    if constexpr (std::is_same_v<To, bf16>) {
        return numbers;
    } else {
        return pairs::multiply(pairs::merge(magnitudes + 0x00800080U, 0x40004000U, numbers), 0x5c005c00U);
    }
}

// Puts 7 bits into the mantissa of 128 and subtracts 128, or 256 for a negative value. For fp16, 8 bits in the mantissa
// of 1024.
template <class To>
IMBREX_KERNEL std::uint32_t upconvert_int8(std::uint32_t even) {
    using pairs = half2_arithmetic<To>;
    if constexpr (std::is_same_v<To, bf16>) {
        return pairs::subtract(pairs::merge(even, 0x007f007fU, 0x43004300U),
                               pairs::merge(even, 0x00800080U, 0x43004300U));
    } else {
        return pairs::subtract((even & 0x00ff00ffU) ^ 0x64806480U, 0x64806480U);
    }
}

// Two adjacent bytes by the hardware's conversion instruction.
IMBREX_KERNEL std::uint32_t e4m3x2_to_half2(std::uint32_t word, int half) {
    std::uint32_t result;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tcvt.rn.f16x2.e4m3x2 %0, low;\n\t}"
        : "=r"(result)
        : "r"(half == 0 ? word : word >> 16));
    return result;
}

template <class To, upconverts_to<To> Stored>
IMBREX_KERNEL upconverted_word upconvert_word(std::uint32_t word) {
    if constexpr (std::is_same_v<Stored, std::int8_t>) {
        return {upconvert_int8<To>(word), upconvert_int8<To>(word >> 8)};
    } else if constexpr (std::is_same_v<To, bf16>) {
        return {upconvert_e4m3<To>((word << 4) & 0x07f007f0U, word << 8),
                upconvert_e4m3<To>((word >> 4) & 0x07f007f0U, word)};
    } else if constexpr (has_fp8_mma) {
        const std::uint32_t low = e4m3x2_to_half2(word, 0), high = e4m3x2_to_half2(word, 1);
        return {low_halves(low, high), high_halves(low, high)};
    } else {
        return {upconvert_e4m3<To>((word << 7) & 0x3f803f80U, word << 8),
                upconvert_e4m3<To>((word >> 1) & 0x3f803f80U, word)};
    }
}

// Loads a B operand from an 8-bit shared tile, in permuted order. Four matrices per ldmatrix: 32 rows of 16 columns or,
// column-major, 16 rows of 32 columns.
template <class T, int Rows, int Columns, register_layout Layout, class Shared>
IMBREX_KERNEL void load_upconverted(const warp& scope, fragment<T, Rows, Columns, 1, Layout>& to, const Shared& from,
                                    source) {
    using stored = std::remove_const_t<typename Shared::element>;
    using fragment_type = fragment<T, Rows, Columns, 1, Layout>;
    constexpr bool across = Layout == register_layout::column_major;
    static_assert(upconverts_to<stored, T> && Rows % 16 == 0 && Columns % 16 == 0 && Shared::rows == Rows &&
                      Shared::columns == Columns,
                  "imbrex: e4m3 and int8 are upconverted to bf16 and fp16, from a shared tile of the same shape");
    static_assert(Layout == register_layout::row_major || Rows == 16,
                  "imbrex: a column-major upconverted operand has a multiple of 16 rows");
    check_scope<fragment_type>(scope);
    const int matrix = lane() / 8, line = lane() % 8;
    constexpr int blocks = fragment_type::blocks, steps = across ? 1 : Columns / 16;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int block = 0; block < blocks; block += 2) {
            // Without a second block the first is loaded twice.
            const int beside = 16 * (block + (block + 1 < blocks ? matrix / 2 : 0));
            const int row = 8 * (matrix % 2) + line + (across ? 0 : beside);
            std::uint32_t words[4];
            load_matrices<across>(words, place_in_shared(from, row, across ? beside : 16 * step));
#pragma unroll
            for (int i = 0; i < 4 && block + i / 2 < blocks; ++i) {
                const upconverted_word both = upconvert_word<T, stored>(words[i]);
                const int second = i % 2;  // half of 16 rows
                to.set_word(block + i / 2, across ? second : 2 * step, across ? 0 : second, both.even);
                to.set_word(block + i / 2, across ? second : 2 * step + 1, across ? 1 : second, both.odd);
            }
        }
    }
}

// Permutes and prescales a tile to be the other operand. A word is a pair of adjacent columns: see gather_line.
template <class Stored, class T, int Rows, int Columns>
IMBREX_KERNEL void permute_columns(const warp& scope, fragment<T, Rows, Columns, 1>& tile, source) {
    static_assert(sizeof(T) == 2 && Columns % 16 == 0,
                  "imbrex: what is multiplied with upconverted elements has 16 bits");
    check_scope<fragment<T, Rows, Columns, 1>>(scope);
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int strip = 0; strip < Columns / 8; strip += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const pairs_in_line line =
                    gather_line({tile.word_at(block, strip, half), tile.word_at(block, strip + 1, half)});
                const auto lifted = [](std::uint32_t pair) {
                    return upconverted_by_bits<Stored, T> ? half2_arithmetic<T>::multiply(pair, 0x6f806f80U) : pair;
                };
                tile.set_word(block, strip, half, lifted(low_halves(line.left, line.right)));
                tile.set_word(block, strip + 1, half, lifted(high_halves(line.left, line.right)));
            }
        }
    }
}

// Unpermutes the columns of a result. A lane has four adjacent columns of each row and exchanges two of them.
template <int Rows, int Columns>
IMBREX_KERNEL void unpermute_columns(const warp& scope, fragment<float, Rows, Columns, 1>& tile, source) {
    static_assert(Columns % 16 == 0, "imbrex: sixteen columns have an order of their own");
    check_scope<fragment<float, Rows, Columns, 1>>(scope);
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int strip = 0; strip < Columns / 8; strip += 2) {
#pragma unroll
            for (int half = 0; half < 4; half += 2) {
                float(&even)[4] = tile.values[block][strip];
                float(&odd)[4] = tile.values[block][strip + 1];
                const pairs_by_strip first =
                    scatter_line({__float_as_uint(even[half]), __float_as_uint(even[half + 1])});
                const pairs_by_strip second =
                    scatter_line({__float_as_uint(odd[half]), __float_as_uint(odd[half + 1])});
                even[half] = __uint_as_float(first.a), even[half + 1] = __uint_as_float(second.a);
                odd[half] = __uint_as_float(first.b), odd[half + 1] = __uint_as_float(second.b);
            }
        }
    }
}

// Multiplies each block of 16 columns by factor(index).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_16_columns(const warp& scope, fragment<float, Rows, Columns, 1>& tile, const Factor& factor,
                                    source) {
    check_scope<fragment<float, Rows, Columns, 1>>(scope);
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int strip = 0; strip < Columns / 8; ++strip) {
#pragma unroll
            for (float& value : tile.values[block][strip]) value *= factor(strip / 2);
        }
    }
}

}  // namespace imbrex::hw
