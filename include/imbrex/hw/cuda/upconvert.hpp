// 8-bit elements from shared memory to the registers of a warp, as 16-bit operands of mma.sync. ldmatrix moves units of 16 bits, so
// that a lane gets neighbours in words; what it makes of a word are the even and the odd of its bytes:
//
//   by rows      A word is columns 4t to 4t + 3 of a row: columns 4t and 4t + 2 become the first eight columns' pair of a lane, 4t + 1
//                and 4t + 3 the second's.
//   by columns   A word is columns 2g and 2g + 1 of two rows: even columns become the first eight, odd ones the second.
//
// So every sixteen columns stand in the widened order: position 2t + i of the first eight is column 4t + 2i, of the second 4t + 2i
// + 1. Where columns are summed over it does not matter, if both operands have them so; and where they are columns of a result,
// they go back to their places once, when the result is complete.
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

// The bits of the two bytes of e4m3, put where a 16-bit float has its exponent, are that number times a power of two. As fp16 they are
// multiplied with what makes it 1; one is added to the last of them before, since a carry tells a NaN.
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

// Seven bits in the mantissa of 128, less 128, or 256 if the number is negative; as fp16, eight bits in that of 1024.
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

// Two bytes next to each other, by the hardware's conversion.
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

// A right operand from a shared tile of 8-bit elements, in the widened order. Four matrices at a time: 32 rows of 16 columns or, in
// column order, 16 rows of 32 columns.
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
                  "imbrex: sixteen rows are upconverted across at a time");
    check_scope<fragment_type>(scope);
    const int matrix = lane() / 8, line = lane() % 8;
    constexpr int blocks = fragment_type::blocks, steps = across ? 1 : Columns / 16;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
#pragma unroll
        for (int block = 0; block < blocks; block += 2) {
            // Where there is no second block, the first comes twice.
            const int beside = 16 * (block + (block + 1 < blocks ? matrix / 2 : 0));
            const int row = 8 * (matrix % 2) + line + (across ? 0 : beside);
            std::uint32_t words[4];
            load_matrices<across>(words, place_in_shared(from, row, across ? beside : 16 * step));
#pragma unroll
            for (int i = 0; i < 4 && block + i / 2 < blocks; ++i) {
                const upconverted_word both = upconvert_word<T, stored>(words[i]);
                const int second = i % 2;  // eight rows
                to.set_word(block + i / 2, across ? second : 2 * step, across ? 0 : second, both.even);
                to.set_word(block + i / 2, across ? second : 2 * step + 1, across ? 1 : second, both.odd);
            }
        }
    }
}

// A tile as the other operand: columns in the widened order, and lifted. A word is a pair of neighbours: see gather_line.
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

// A result's columns from the widened order to their places. A lane has four neighbours of each row and gives two of them away.
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

// Each sixteen columns times factor(number).
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
