// Packed weights (core/packed_weights.hpp) from shared memory to the registers of a warpgroup, as 16-bit floats: a thread
// loads 16 bytes without a bank conflict and makes pairs of them, each by two or three integer instructions and one that
// computes with both.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

// Two 16-bit floats at once, in the instruction that all architectures have.
template <class Float>
struct float_pairs {
    static constexpr std::uint32_t one = std::is_same_v<Float, bf16> ? 0x3f803f80U : 0x3c003c00U;
    static constexpr std::uint32_t sign = 0x80008000U;

    IMBREX_KERNEL static std::uint32_t subtract(std::uint32_t a, std::uint32_t b) { return fma(b, one | sign, a); }
    // A product and a negative zero are the product, whatever its sign.
    IMBREX_KERNEL static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) { return fma(a, b, sign); }
    // The compiler would make two instructions of it, each with a constant, to save the register of one.
    IMBREX_KERNEL static std::uint32_t merge(std::uint32_t a, std::uint32_t mask, std::uint32_t b) {
        std::uint32_t result;
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(b));
        return result;
    }

  private:
    IMBREX_KERNEL static std::uint32_t fma(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        std::uint32_t result;
        if constexpr (std::is_same_v<Float, bf16>) {
            asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        } else {
            asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        }
        return result;
    }
};

// packed_scale_pair in a form that costs nothing: the compiler has the multiplication take the one half twice.
template <class Float>
IMBREX_KERNEL std::uint32_t scale_twice(std::uint32_t word, int which) {
    const std::uint32_t both = packed_scales_of_row<Float>(word, which % 2);
    std::uint32_t result;
    if (which / 2 == 0) {
        asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tmov.b32 %0, {low, low};\n\t}"
            : "=r"(result)
            : "r"(both));
    } else {
        asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %1;\n\tmov.b32 %0, {high, high};\n\t}"
            : "=r"(result)
            : "r"(both));
    }
    return result;
}

// A thread's numbers of one unit; scale(column, half) is what those of a strip's row are multiplied by.
template <class Format, class Float, int Rows, int Columns, int Warps, class Scale>
IMBREX_KERNEL void dequantise_chunk(fragment<Float, Rows, Columns, Warps>& to, int number,
                                    const std::uint32_t (&words)[4], Scale scale) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int word = 0; word < unit::words_of_thread; ++word) {
#pragma unroll
        for (int pair = 0; pair < unit::pairs_of_word; ++pair) {
            const int place = word * unit::pairs_of_word + pair;
            const int strip = number * (unit::columns / 8) + place / 2;
            to.set_word(
                0, strip, place % 2,
                packed_floats<Format, Float, float_pairs<Float>>(words[word], pair, scale(strip * 8, place % 2)));
        }
    }
}

// A thread's numbers of some units.
template <class Format, int Columns, class Float, class Scale>
IMBREX_KERNEL void dequantise_units(fragment<Float, packed_rows, Columns, 4>& to, const std::uint32_t* units,
                                    int thread, Scale scale) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int number = 0; number < Columns / unit::columns; ++number) {
        const uint4 chunk = reinterpret_cast<const uint4*>(units + number * unit::words)[thread];
        dequantise_chunk<Format>(to, number, {chunk.x, chunk.y, chunk.z, chunk.w}, scale);
    }
}

// Columns `first` and on of a packed tile.
template <class Float, int Columns, class Packed>
IMBREX_KERNEL void dequantise(const warpgroup& scope, fragment<Float, packed_rows, Columns, 4>& to, const Packed& from,
                              int first, source = source::current()) {
    __syncwarp();
    dequantise_units<typename Packed::format>(to, from.unit_at(first), thread_in(scope), [](int, int) { return 0U; });
}

// The same of 4-bit floats, with their scales.
template <class Float, int Columns, class Packed, class Scales>
IMBREX_KERNEL void dequantise_scaled(const warpgroup& scope, fragment<Float, packed_rows, Columns, 4>& to,
                                     const Packed& from, const Scales& scales, int first, source = source::current()) {
    __syncwarp();
    const std::uint32_t* scale_words = scales.words_at(first);
    std::uint32_t pairs[Columns / packed_scale_columns][2];
#pragma unroll
    for (int which = 0; which < Columns / packed_columns; ++which) {
        const std::uint32_t word = scale_words[which * packed_scale_words + lane_row() * 4 + scope.rank()];
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            pairs[2 * which + part / 2][part % 2] = scale_twice<Float>(word, part);
        }
    }
    dequantise_units<typename Packed::format>(to, from.unit_at(first), thread_in(scope), [&](int column, int half) {
        return pairs[column / packed_scale_columns][half];
    });
}

// What one warp holds of 64 rows of packed weights, still packed: for each 16 rows what a warp of a group would load.
template <packable Format, int Columns>
struct packed_fragment {
    using unit = packed_unit<Format>;
    static constexpr int units = Columns / unit::columns;
    std::uint32_t words[packed_rows / 16][units][unit::words_of_thread];
};
template <int Columns>
struct packed_scale_fragment {
    std::uint32_t words[Columns / packed_columns][packed_rows / 16];
};

template <class Format, int Columns, class Packed>
IMBREX_KERNEL void load_packed(const warp&, packed_fragment<Format, Columns>& to, const Packed& from,
                               source = source::current()) {
    using unit = packed_unit<Format>;
    __syncwarp();
#pragma unroll
    for (int rows = 0; rows < packed_rows / 16; ++rows) {
#pragma unroll
        for (int number = 0; number < Columns / unit::columns; ++number) {
            write_as(&to.words[rows][number],
                     reinterpret_cast<const uint4*>(from.unit_at(number * unit::columns))[rows * 32 + lane()]);
        }
    }
}
template <int Columns, class Scales>
IMBREX_KERNEL void load_packed_scales(const warp&, packed_scale_fragment<Columns>& to, const Scales& from,
                                      source = source::current()) {
    __syncwarp();
#pragma unroll
    for (int which = 0; which < Columns / packed_columns; ++which) {
        write_as(&to.words[which], reinterpret_cast<const uint4*>(from.words_at(which * packed_columns))[lane_row()]);
    }
}

// A scale for each of 64 rows.
template <class Scale>
IMBREX_KERNEL void load_row_scales(const warp&, row_fragment<Scale, packed_rows, 1>& to, const Scale* from, source) {
    __syncwarp();
    constexpr int of_lane = packed_rows / 8, in_chunk = 16 / static_cast<int>(sizeof(Scale));
    const Scale* first = from + lane_row() * of_lane;
#pragma unroll
    for (int i = 0; i < of_lane; i += in_chunk) {
        write_as(&to.values[i / 2][0], *reinterpret_cast<const uint4*>(first + i));
    }
}
template <class Scale>
IMBREX_KERNEL void load_row_scales(const warpgroup& scope, row_fragment<Scale, packed_rows, 4>& to, const Scale* from,
                                   source here) {
    __syncwarp();
    visit_rows(
        scope, use::write, here, [&](int row, Scale& value) { value = from[packed_row_place(row)]; }, to);
}

// Sixteen rows of them from FirstRow on, and columns from FirstColumn on. f(place, word, pair) says what the two numbers of a pair are.
template <int FirstRow, int FirstColumn, class Float, int Width, class Format, int Columns, class F>
IMBREX_KERNEL void each_pair_of_rows(fragment<Float, 16, Width, 1>& to, const packed_fragment<Format, Columns>& from,
                                     F f) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int strip = 0; strip < Width / 8; ++strip) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int column = FirstColumn + strip * 8, place = column % unit::columns / 8 * 2 + half;
            const std::uint32_t word = from.words[FirstRow / 16][column / unit::columns][place / unit::pairs_of_word];
            to.set_word(0, strip, half, f(column, half, word, place % unit::pairs_of_word));
        }
    }
}
template <int FirstRow, int FirstColumn, class Float, int Width, class Format, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp&, fragment<Float, 16, Width, 1>& to,
                                   const packed_fragment<Format, Columns>& from, source) {
    each_pair_of_rows<FirstRow, FirstColumn>(to, from, [](int, int, std::uint32_t word, int pair) {
        return packed_floats<Format, Float, float_pairs<Float>>(word, pair);
    });
}
template <int FirstRow, int FirstColumn, class Float, int Width, class Format, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp&, fragment<Float, 16, Width, 1>& to,
                                   const packed_fragment<Format, Columns>& from,
                                   const packed_scale_fragment<Columns>& scales, source) {
    each_pair_of_rows<FirstRow, FirstColumn>(to, from, [&](int column, int half, std::uint32_t word, int pair) {
        const std::uint32_t of_rows = scales.words[column / packed_columns][FirstRow / 16];
        const int which = column % packed_columns / packed_scale_columns * 2 + half;
        return packed_floats<Format, Float, float_pairs<Float>>(word, pair, scale_twice<Float>(of_rows, which));
    });
}

// int4 as grains, what lowers them, and what they are multiplied with.
template <int FirstRow, int FirstColumn, class Float, int Width, int Columns>
IMBREX_KERNEL void grain_rows(const warp&, fragment<Float, 16, Width, 1>& to,
                              const packed_fragment<int4x2, Columns>& from, source) {
    each_pair_of_rows<FirstRow, FirstColumn>(
        to, from, [](int, int, std::uint32_t word, int pair) { return packed_grains(word, pair); });
}
template <class Float, int Columns>
IMBREX_KERNEL void fill_lowering(const warp&, fragment<Float, 16, Columns, 1>& to, source) {
    // Kept from the compiler, which would write a constant into other registers for each product.
    std::uint32_t every_bit;
    asm volatile("vote.sync.ballot.b32 %0, 1, 0xffffffff;" : "=r"(every_bit));
#pragma unroll
    for (int place = 0; place < Columns / 4; ++place) {
        to.set_word(0, place / 2, place % 2, packed_lowering(place % 2) & every_bit);
    }
}
template <class Float, int Columns>
IMBREX_KERNEL void enlarge(const warp&, fragment<Float, 16, Columns, 1>& tile, source) {
    constexpr std::uint32_t by = 0x5f805f80U;
    static_assert(packed_enlargement<bf16> == 0x1p64F && packed_enlargement<fp16> == 1.0F);
    if constexpr (std::is_same_v<Float, bf16>) {
#pragma unroll
        for (int place = 0; place < Columns / 4; ++place) {
            tile.set_word(0, place / 2, place % 2,
                          float_pairs<bf16>::multiply(tile.word_at(0, place / 2, place % 2), by));
        }
    }
}

}  // namespace imbrex::hw
