// Dequantises packed weights (core/packed_weights.hpp) from shared memory into the registers of a warpgroup as bf16 or
// fp16 (dequantize in American spelling). A thread loads 16 bytes without bank conflicts. Each pair takes one to three
// integer instructions and one two-wide floating-point instruction.
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

// Two-wide 16-bit arithmetic by fma, which all architectures have.
template <class Float>
struct half2_arithmetic {
    static constexpr std::uint32_t one = std::is_same_v<Float, bf16> ? 0x3f803f80U : 0x3c003c00U;
    static constexpr std::uint32_t sign = 0x80008000U;

    IMBREX_KERNEL static std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
        return multiply_add(b, one | sign, a);
    }
    // Adding -0.0 keeps the product, whatever its sign.
    IMBREX_KERNEL static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) { return multiply_add(a, b, sign); }
    // One lop3. The compiler would use two instructions with immediates to save the register of a constant.
    IMBREX_KERNEL static std::uint32_t merge(std::uint32_t a, std::uint32_t mask, std::uint32_t b) {
        std::uint32_t result;
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(b));
        return result;
    }
    IMBREX_KERNEL static std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        std::uint32_t result;
        if constexpr (std::is_same_v<Float, bf16>) {
            asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        } else {
            asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        }
        return result;
    }
    // The third bit of a nibble selects between the levels 0 to 7 and 8 to 15.
    template <class Format>
    IMBREX_KERNEL static std::uint32_t look_up(std::uint32_t nibbles) {
        constexpr std::uint32_t levels[4] = {Format::levels(0), Format::levels(4), Format::levels(8),
                                             Format::levels(12)};
        const std::uint32_t low_bits = nibbles & 0x7777U, top_bits = (nibbles >> 1 & 0x4444U) | 0x3210U;
        return __byte_perm(__byte_perm(levels[0], levels[1], low_bits), __byte_perm(levels[2], levels[3], low_bits),
                           top_bits);
    }
    IMBREX_KERNEL static std::uint32_t pair_of(std::uint32_t a, std::uint32_t b, int i) {
        return __byte_perm(a, b, static_cast<unsigned>(i | (4 + i) << 8));
    }
};

// packed_scale_pair at no cost: the compiler folds the broadcast of a half into the operand of the multiplication.
template <class Float>
IMBREX_KERNEL std::uint32_t broadcast_scale(std::uint32_t word, int which) {
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

// The words of a thread in one unit.
template <class Format>
struct packed_chunk {
    using unit = packed_unit<Format>;
    static constexpr int high_words = unit::high_words_per_thread;
    std::uint32_t words[unit::words_per_thread + high_words];

    IMBREX_KERNEL void load(const std::uint32_t* unit, int thread) {
        write_as(&words[0], reinterpret_cast<const uint4*>(unit)[thread]);
        if constexpr (high_words > 0) {
            write_as(&words[4], reinterpret_cast<const word<4 * high_words>*>(unit + 512)[thread]);
        }
    }
};

// The elements of a thread in one unit. scale(column, half) is the factor for a row of a block of 8 columns.
template <class Format, class Float, int Rows, int Columns, int Warps, class Scale>
IMBREX_KERNEL void dequantise_chunk(fragment<Float, Rows, Columns, Warps>& to, int number,
                                    const packed_chunk<Format>& from, Scale scale) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int word = 0; word < unit::words_per_thread; ++word) {
#pragma unroll
        for (int pair = 0; pair < unit::pairs_per_word; ++pair) {
            const int place = word * unit::pairs_per_word + pair;
            const int strip = number * (unit::columns / 8) + place / 2;
            std::uint32_t other;
            if constexpr (unit::high_words_per_thread > 0) {
                other = packed_high_fields<Format>(from.words + unit::words_per_thread, place);
            } else {
                other = scale(strip * 8, place % 2);
            }
            to.set_word(0, strip, place % 2,
                        packed_floats<Format, Float, half2_arithmetic<Float>>(from.words[word], pair, other));
        }
    }
}

// The elements of a thread in several units.
template <class Format, int Columns, class Float, class Scale>
IMBREX_KERNEL void dequantise_units(fragment<Float, packed_rows, Columns, 4>& to, const std::uint32_t* units,
                                    int thread, Scale scale) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int number = 0; number < Columns / unit::columns; ++number) {
        packed_chunk<Format> chunk;
        chunk.load(units + number * unit::words, thread);
        dequantise_chunk<Format>(to, number, chunk, scale);
    }
}

// Columns from `first` on of a packed tile.
template <class Float, int Columns, class Packed>
IMBREX_KERNEL void dequantise(const warpgroup& scope, fragment<Float, packed_rows, Columns, 4>& to, const Packed& from,
                              int first, source = source::current()) {
    __syncwarp();
    dequantise_units<typename Packed::format>(to, from.unit_at(first), thread_in(scope), [](int, int) { return 0U; });
}

// The same for e2m1 with its scales (MXFP4).
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
            pairs[2 * which + part / 2][part % 2] = broadcast_scale<Float>(word, part);
        }
    }
    dequantise_units<typename Packed::format>(to, from.unit_at(first), thread_in(scope), [&](int column, int half) {
        return pairs[column / packed_scale_columns][half];
    });
}

// The fragment of 64 packed rows in a warp: for each 16 rows, what one warp of a warpgroup would load. There is no
// __syncwarp before the load, since the compiler moves nothing across it; the wait for the copies already orders them.
template <packable Format, int Columns>
struct packed_fragment {
    using unit = packed_unit<Format>;
    static constexpr int units = Columns / unit::columns;
    packed_chunk<Format> chunks[packed_rows / 16][units];
};
template <int Columns>
struct packed_scale_fragment {
    std::uint32_t words[packed_rows / 16][Columns / packed_columns];
};

template <class Format, int Columns, class Packed>
IMBREX_KERNEL void load_packed(const warp&, packed_fragment<Format, Columns>& to, const Packed& from,
                               source = source::current()) {
    using unit = packed_unit<Format>;
#pragma unroll
    for (int rows = 0; rows < packed_rows / 16; ++rows) {
#pragma unroll
        for (int number = 0; number < Columns / unit::columns; ++number) {
            to.chunks[rows][number].load(from.unit_at(number * unit::columns), rows * 32 + lane());
        }
    }
}
template <int Columns, class Scales>
IMBREX_KERNEL void load_packed_scales(const warp&, packed_scale_fragment<Columns>& to, const Scales& from,
                                      source = source::current()) {
#pragma unroll
    for (int which = 0; which < Columns / packed_columns; ++which) {
        const uint4 four = reinterpret_cast<const uint4*>(from.words_at(which * packed_columns))[lane_row()];
        to.words[0][which] = four.x, to.words[1][which] = four.y;
        to.words[2][which] = four.z, to.words[3][which] = four.w;
    }
}

// Scales of integers: a warp holds those of all 64 rows, a warp of a warpgroup those of its 16.
template <class T, class Scales>
IMBREX_KERNEL void load_row_scales(const warp&, row_fragment<T, packed_rows, 1>& to, const Scales& from,
                                   source = source::current()) {
    constexpr int chunks = packed_scales_per_lane * static_cast<int>(sizeof(T)) / 16;
    const T* const own = from.storage + lane_row() * packed_scales_per_lane;
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
        write_as(&to.values[0][0] + chunk * (packed_scales_per_lane / chunks),
                 reinterpret_cast<const uint4*>(own)[chunk]);
    }
}
template <class T, class Scales>
IMBREX_KERNEL void load_row_scales(const warpgroup& scope, row_fragment<T, packed_rows, 4>& to, const Scales& from,
                                   source = source::current()) {
    using two = word<2 * static_cast<int>(sizeof(T))>;
    __syncwarp();
    write_as(&to.values[0][0],
             reinterpret_cast<const two*>(from.storage + lane_row() * packed_scales_per_lane)[scope.rank()]);
}

// Calls f(word, row, half) -> word for the pairs of columns First to First + Count - 1.
template <int First, int Count, class Float, int Rows, int Columns, int Warps, class F>
IMBREX_KERNEL void map_pairs(fragment<Float, Rows, Columns, Warps>& tile, F f) {
    using fragment_type = fragment<Float, Rows, Columns, Warps>;
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int strip = First / 8; strip < (First + Count) / 8; ++strip) {
                tile.set_word(block, strip, half, f(tile.word_at(block, strip, half), block, half));
            }
        }
    }
}

// Multiplies columns First to First + Count - 1 by the scale of their row times `factor`, and subtracts the minimum of their
// row; rounded to Float, two at a time.
template <class Float, class T>
IMBREX_KERNEL std::uint32_t pair_of(T value, float factor) {
    const float both = imbrex::convert<float>(value) * factor;
    return Float::encode_pair(both, both);
}
template <int First, int Count, class Float, int Rows, int Columns, int Warps, class T>
IMBREX_KERNEL void scale_group(const warpgroup&, fragment<Float, Rows, Columns, Warps>& tile,
                               const row_fragment<T, Rows, Warps>& scales, float factor, source = source::current()) {
    map_pairs<First, Count>(tile, [&](std::uint32_t word, int block, int half) {
        return half2_arithmetic<Float>::multiply(word, pair_of<Float>(scales.values[block][half], factor));
    });
}
template <int First, int Count, class Float, int Rows, int Columns, int Warps, class T>
IMBREX_KERNEL void scale_group(const warpgroup&, fragment<Float, Rows, Columns, Warps>& tile,
                               const row_fragment<T, Rows, Warps>& scales, float factor,
                               const row_fragment<T, Rows, Warps>& minimums, source = source::current()) {
    map_pairs<First, Count>(tile, [&](std::uint32_t word, int block, int half) {
        return half2_arithmetic<Float>::multiply_add(word, pair_of<Float>(scales.values[block][half], factor),
                                                     pair_of<Float>(minimums.values[block][half], -1.0f));
    });
}

// Dequantises 16 rows from FirstRow on.
template <int FirstRow, class Float, class Format, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp&, fragment<Float, 16, Columns, 1>& to,
                                   const packed_fragment<Format, Columns>& from, source) {
#pragma unroll
    for (int number = 0; number < packed_fragment<Format, Columns>::units; ++number) {
        dequantise_chunk<Format>(to, number, from.chunks[FirstRow / 16][number], [](int, int) { return 0U; });
    }
}
template <int FirstRow, class Float, class Format, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp&, fragment<Float, 16, Columns, 1>& to,
                                   const packed_fragment<Format, Columns>& from,
                                   const packed_scale_fragment<Columns>& scales, source) {
#pragma unroll
    for (int number = 0; number < packed_fragment<Format, Columns>::units; ++number) {
        dequantise_chunk<Format>(to, number, from.chunks[FirstRow / 16][number], [&](int column, int half) {
            const std::uint32_t word = scales.words[FirstRow / 16][column / packed_columns];
            return broadcast_scale<Float>(word, column % packed_columns / packed_scale_columns * 2 + half);
        });
    }
}

}  // namespace imbrex::hw
