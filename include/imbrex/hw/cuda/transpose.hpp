// Transposes of register tiles on the device (see ops/warp/transpose.hpp). movmatrix transposes an 8 x 8 matrix of
// 16-bit elements between lanes; 32-bit elements take two, one for the low and one for the high halves.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>

namespace imbrex::hw {

// From row g, columns 2t and 2t + 1, to column g, rows 2t and 2t + 1.
IMBREX_KERNEL std::uint32_t transposed_matrix(std::uint32_t pair) {
    std::uint32_t result;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}

template <class Warp, class T, int Rows, int Columns>
IMBREX_KERNEL fragment<T, 16, Rows, 1> transpose(const Warp&, const fragment<T, Rows, Columns, 1>& tile, source) {
    fragment<T, 16, Rows, 1> result;
#pragma unroll
    for (int strip = 0; strip < Rows / 8; ++strip) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // Eight rows and columns of the tile; the second eight columns may not exist.
            const int block = strip / 2, below = strip % 2;
            if constexpr (sizeof(T) == 2) {
                const std::uint32_t found =
                    8 * half < Columns ? transposed_matrix(tile.word_at(block, half, below)) : 0U;
                result.set_word(0, strip, half, found);
            } else {
                std::uint32_t words[2] = {0, 0};
                if (8 * half < Columns) {
                    const std::uint32_t left = read_as<std::uint32_t>(&tile.values[block][half][2 * below]);
                    const std::uint32_t right = read_as<std::uint32_t>(&tile.values[block][half][2 * below + 1]);
                    const std::uint32_t low = transposed_matrix(__byte_perm(left, right, 0x5410));
                    const std::uint32_t high = transposed_matrix(__byte_perm(left, right, 0x7632));
                    words[0] = __byte_perm(low, high, 0x5410);
                    words[1] = __byte_perm(low, high, 0x7632);
                }
#pragma unroll
                for (int item = 0; item < 2; ++item) write_as(&result.values[0][strip][2 * half + item], words[item]);
            }
        }
    }
    return result;
}

// Column values as row values: the lanes of row g read a lane that has column g.
template <class Warp, class T, int Columns>
IMBREX_KERNEL row_fragment<T, 16, 1> transpose(const Warp&, const column_fragment<T, Columns>& values, source) {
    row_fragment<T, 16, 1> result;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        if (8 * half < Columns) {
            const int from = lane_row() / 2;
            const T even = __shfl_sync(all_lanes, values.values[8 * half < Columns ? half : 0][0], from);
            const T odd = __shfl_sync(all_lanes, values.values[8 * half < Columns ? half : 0][1], from);
            result.values[0][half] = lane_row() % 2 == 0 ? even : odd;
        } else {
            result.values[0][half] = T{};
        }
    }
    return result;
}

// Row values as column values.
template <int Columns, class Warp, class T>
IMBREX_KERNEL column_fragment<T, Columns> transpose_rows(const Warp&, const row_fragment<T, 16, 1>& values, source) {
    column_fragment<T, Columns> result;
#pragma unroll
    for (int strip = 0; strip < Columns / 8; ++strip) {
#pragma unroll
        for (int item = 0; item < 2; ++item) {
            result.values[strip][item] =
                __shfl_sync(all_lanes, values.values[0][strip], 4 * (2 * lane_in_quad() + item));
        }
    }
    return result;
}

}  // namespace imbrex::hw
