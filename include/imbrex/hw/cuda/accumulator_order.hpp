// 8-bit operands in accumulator order on the device (see ops/warp/accumulator_order.hpp).
//
// The transposition: ldmatrix.trans moves pairs of bytes, so a lane gets the bytes of two columns, 2g and 2g + 1, in
// rows 2t and 2t + 1; with a second matrix eight rows below also in rows 2t + 8 and 2t + 9. A byte permutation
// separates the columns, and the four bytes of each are in accumulator order already:
//
//     word of rows 0 to 7     (2t, 2g) (2t, 2g+1) (2t+1, 2g) (2t+1, 2g+1)
//     word of rows 8 to 15    (2t+8, 2g) ...
//     permuted                (2t, 2g) (2t+1, 2g) (2t+8, 2g) (2t+9, 2g)   and the same for 2g + 1
//
// These are the words of a B operand of mma.sync, with its columns in the order of hw/cuda/upconvert.hpp: the even ones
// of 16 for the first instruction, the odd ones for the second.
//
// stmatrix stores eight columns as eight rows of 16 bytes. The columns of one matrix are 0, 2, 4, 6, 9, 11, 13, 15 and
// those of the other 1, 3, 5, 7, 8, 10, 12, 14: these rows differ modulo 8, so the swizzle spreads them over all banks.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/ldmatrix.hpp>
#include <imbrex/hw/cuda/scope.hpp>

#include <cstdint>

namespace imbrex::hw {

// Two pairs of 8-bit elements in one register.
IMBREX_KERNEL std::uint32_t word_of_pairs(std::uint16_t low, std::uint16_t high) {
    std::uint32_t word;
    asm("mov.b32 %0, {%1, %2};" : "=r"(word) : "h"(low), "h"(high));
    return word;
}

template <class Scope, class To, int Rows, int Columns, int Warps>
IMBREX_KERNEL void convert_to_accumulator_order(const Scope& scope, fragment<To, Rows, Columns, Warps>& to,
                                                const fragment<float, Rows, Columns, Warps>& from, source) {
    using to_fragment = fragment<To, Rows, Columns, Warps>;
    check_scope<to_fragment>(scope);
#pragma unroll
    for (int block = 0; block < to_fragment::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < to_fragment::strips; ++strip) {
            const auto& left = from.values[block][2 * strip];
            const auto& right = from.values[block][2 * strip + 1];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                to.set_word(block, strip, half,
                            word_of_pairs(To::encode_pair(left[2 * half], left[2 * half + 1]),
                                          To::encode_pair(right[2 * half], right[2 * half + 1])));
            }
        }
    }
}

// Rows of `from` become k in accumulator order, two strips of columns at a time.
template <class T, int Columns, int Rows, class Shared>
IMBREX_KERNEL void load_in_accumulator_order(const warp&, fragment<T, Columns, Rows, 1>& to, const Shared& from,
                                             source) {
    static_assert(std::is_same_v<T, std::remove_const_t<typename Shared::element>> && sizeof(T) == 1 &&
                      Shared::rows == Rows && Shared::columns == Columns && Columns % 32 == 0,
                  "imbrex: an operand in accumulator order is loaded from a shared tile of the same 8-bit type, with a "
                  "multiple of 32 columns");
    const int matrix = lane() / 8, line = lane() % 8;
#pragma unroll
    for (int beside = 0; beside < Columns / 32; ++beside) {
#pragma unroll
        for (int strip = 0; strip < Rows / 16; ++strip) {
            std::uint32_t words[4];
            load_matrices<true>(words, place_in_shared(from, 8 * (matrix % 2) + line, 32 * beside + 16 * (matrix / 2)) +
                                           16 * strip * layout_of<Shared>::panel_bytes_wide);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                to.set_word(2 * beside + i, strip, 0, __byte_perm(words[2 * i], words[2 * i + 1], 0x6420));
                to.set_word(2 * beside + i, strip, 1, __byte_perm(words[2 * i], words[2 * i + 1], 0x7531));
            }
        }
    }
}

// A word whose lowest `count` bytes are ones.
IMBREX_KERNEL std::uint32_t lowest_bytes(int count) {
    return lowest_bits(8 * count);
}

// One strip of 16 rows of `from` becomes one chunk of each of the rows of `to`. Rows from `left` on become zero.
template <bool Partial, class To, class From>
IMBREX_KERNEL void transpose_strip(const To& to, const From& from, int strip, int left) {
    const int matrix = lane() / 8, line = lane() % 8;
    const bool upper = lane_row() >= 4;
    const std::uint32_t first = upper ? 0x7531U : 0x6420U, second = upper ? 0x6420U : 0x7531U;
    std::uint32_t kept = 0xffffffffU;
    if constexpr (Partial) {
        const int above = left - 2 * lane_in_quad();
        kept = lowest_bytes(above < 2 ? above : 2) | lowest_bytes(above - 8 < 2 ? above - 8 : 2) << 16;
    }
    const int to_row = 16 * (matrix / 2) + 2 * line + (matrix % 2 ^ line / 4);
    unsigned char* const target = reinterpret_cast<unsigned char*>(to.address(to_row, 16 * strip));
    constexpr int pieces = From::columns / 32;
    constexpr int together = pieces % 2 == 0 ? 2 : 1;  // loads in flight
#pragma unroll
    for (int piece = 0; piece < pieces; piece += together) {
        std::uint32_t words[together][4];
#pragma unroll
        for (int i = 0; i < together; ++i) {
            load_matrices<true>(
                words[i], from.address(16 * strip + 8 * (matrix % 2) + line, 32 * (piece + i) + 16 * (matrix / 2)));
        }
#pragma unroll
        for (int i = 0; i < together; ++i) {
            const std::uint32_t(&w)[4] = words[i];
            const std::uint32_t stored[4] = {
                __byte_perm(w[0], w[1], first) & kept, __byte_perm(w[0], w[1], second) & kept,
                __byte_perm(w[2], w[3], first) & kept, __byte_perm(w[2], w[3], second) & kept};
            store_matrices<false>(target + 32 * (piece + i) * layout_of<To>::panel_bytes_wide, stored);
        }
    }
}

template <class To, class From>
IMBREX_KERNEL void transpose_to_accumulator_order(const warp&, const To& to, const From& from, int valid_rows, source) {
    __syncwarp();
    constexpr int strips = From::rows / 16;
    const int whole = valid_rows / 16 < strips ? valid_rows / 16 : strips;
#pragma unroll 1
    for (int strip = 0; strip < whole; ++strip) transpose_strip<false>(to, from, strip, 16);
#pragma unroll 1
    for (int strip = whole < 0 ? 0 : whole; strip < strips; ++strip) {
        transpose_strip<true>(to, from, strip, valid_rows - 16 * strip);
    }
}

// In place, a chunk of 16 bytes in each lane.
template <class Shared>
IMBREX_KERNEL void reorder_to_accumulator_order(const warp& scope, Shared& tile, int valid_columns, source) {
    using chunks = chunks_of<Shared>;
    __syncwarp();
#pragma unroll 4
    for (int chunk = thread_in(scope); chunk < chunks::count; chunk += warp::threads) {
        uint4& place = *reinterpret_cast<uint4*>(tile.address(chunks::row(chunk), chunks::column(chunk)));
        uint4 words = place;
        const int left = valid_columns - chunks::column(chunk);
        if (left < 16) {
            words.x &= lowest_bytes(left);
            words.y &= lowest_bytes(left - 4);
            words.z &= lowest_bytes(left - 8);
            words.w &= lowest_bytes(left - 12);
        }
        place = {low_halves(words.x, words.z), high_halves(words.x, words.z), low_halves(words.y, words.w),
                 high_halves(words.y, words.w)};
    }
}

}  // namespace imbrex::hw
