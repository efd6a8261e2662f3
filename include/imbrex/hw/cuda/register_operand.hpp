// 8-bit operands kept in the registers of a warp as ldmatrix delivers them and upconverted to 16-bit floats only when
// multiplied. They take half the registers until then, and their shared memory is free. A lane holds words of four
// elements:
//
//   by rows      columns 4t to 4t + 3 of a row: the first two become the lane's pair in the first eight columns, the
//                others in the second eight
//   by columns   columns 2g and 2g + 1 of two rows: the even column goes to the first eight, the odd one to the second
//
// Operands by columns are therefore in the permuted order of hw/cuda/upconvert.hpp, and operands by rows in a pair
// order, that of `permute_pairs`.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/cuda/copy_register.hpp>
#include <imbrex/hw/cuda/dequantise.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/upconvert.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

template <class Stored, int Rows, int Columns, register_layout Layout>
struct fragment_8bit {
    static_assert(Rows % 16 == 0 && Columns % 32 == 0,
                  "imbrex: 8-bit elements are held 16 rows by 32 columns at a time");
    std::uint32_t words[Rows / 16][Columns / 16][2];  // of each 16 x 16 block: upper and lower rows
};

template <class Stored, int Rows, int Columns, register_layout Layout, class Shared>
IMBREX_KERNEL void load_8bit(const warp&, fragment_8bit<Stored, Rows, Columns, Layout>& to, const Shared& from,
                             source) {
    static_assert(std::is_same_v<Stored, std::remove_const_t<typename Shared::element>> && Shared::rows == Rows &&
                      Shared::columns == Columns,
                  "imbrex: an 8-bit register operand is loaded from a shared tile of the same type and shape");
    const int matrix = lane() / 8, line = lane() % 8;
#pragma unroll
    for (int beside = 0; beside < Columns / 32; ++beside) {
#pragma unroll
        for (int below = 0; below < Rows / 16; ++below) {
            std::uint32_t words[4];
            load_matrices<Layout == register_layout::column_major>(
                words, place_in_shared(from, 8 * (matrix % 2) + line, 32 * beside + 16 * (matrix / 2)) +
                           16 * below * layout_of<Shared>::panel_bytes_wide);
#pragma unroll
            for (int i = 0; i < 4; ++i) to.words[below][2 * beside + i / 2][i % 2] = words[i];
        }
    }
}

// Two adjacent bytes as a pair of floats: the lower and the upper two of a word.
struct upconverted_pairs {
    std::uint32_t low, high;
};
template <upconverts_to<fp16> Stored>
IMBREX_KERNEL upconverted_pairs upconvert_adjacent(std::uint32_t word) {
    if constexpr (std::is_same_v<Stored, std::int8_t>) {
        // Puts 8 bits into the mantissa of 1024, then subtracts 1024 and 128.
        const std::uint32_t lifted = word ^ 0x80808080U;
        return {half2_arithmetic<fp16>::subtract(__byte_perm(lifted, 0x64646464U, 0x4140), 0x64806480U),
                half2_arithmetic<fp16>::subtract(__byte_perm(lifted, 0x64646464U, 0x4342), 0x64806480U)};
    } else if constexpr (has_fp8_mma) {
        return {e4m3x2_to_half2(word, 0), e4m3x2_to_half2(word, 1)};
    } else {
        const upconverted_word both = upconvert_word<fp16, Stored>(word);
        return {low_halves(both.even, both.odd), high_halves(both.even, both.odd)};
    }
}

// Sixteen columns of all rows, or sixteen rows of all columns.
template <class Stored, int Rows, int Columns>
IMBREX_KERNEL void upconvert_columns(const warp&, fragment<fp16, Rows, 16, 1>& to,
                                     const fragment_8bit<Stored, Rows, Columns, register_layout::row_major>& from,
                                     int number, source) {
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const upconverted_pairs pairs = upconvert_adjacent<Stored>(from.words[block][number][half]);
            to.set_word(block, 0, half, pairs.low);
            to.set_word(block, 1, half, pairs.high);
        }
    }
}
template <class Stored, int Rows, int Columns>
IMBREX_KERNEL void upconvert_rows(const warp&, fragment<fp16, 16, Columns, 1, register_layout::column_major>& to,
                                  const fragment_8bit<Stored, Rows, Columns, register_layout::column_major>& from,
                                  int number, source) {
#pragma unroll
    for (int block = 0; block < Columns / 16; ++block) {
#pragma unroll
        for (int below = 0; below < 2; ++below) {
            const std::uint32_t word = from.words[number][block][below];
            const upconverted_pairs pairs = upconvert_adjacent<Stored>(__byte_perm(word, 0, 0x3120));
            to.set_word(block, below, 0, pairs.low);
            to.set_word(block, below, 1, pairs.high);
        }
    }
}

// Sixteen columns of the other operand, in pair order.
template <class T, int Rows>
IMBREX_KERNEL void permute_pairs(const warp&, fragment<T, Rows, 16, 1>& tile, source) {
    static_assert(sizeof(T) == 2, "imbrex: what is multiplied with upconverted elements has 16 bits");
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const pairs_in_line line = gather_line({tile.word_at(block, 0, half), tile.word_at(block, 1, half)});
            tile.set_word(block, 0, half, line.left);
            tile.set_word(block, 1, half, line.right);
        }
    }
}

// Multiplies each block of 16 rows by factor(index).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_16_rows(const warp&, fragment<float, Rows, Columns, 1>& tile, const Factor& factor, source) {
#pragma unroll
    for (int block = 0; block < Rows / 16; ++block) {
#pragma unroll
        for (int strip = 0; strip < Columns / 8; ++strip) {
#pragma unroll
            for (float& value : tile.values[block][strip]) value *= factor(block);
        }
    }
}

}  // namespace imbrex::hw
