// Operations on neighbours of vectorised rows, on the device: pairs of columns, Walsh-Hadamard transforms of runs of
// columns, and reductions of whole tiles.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/vector_row.hpp>

#include <type_traits>

namespace imbrex::hw {

template <class Tile>
IMBREX_KERNEL void write_pair(Tile& tile, int step, int item, const float_pair& two) {
    if constexpr (!std::is_const_v<Tile>) tile.chunks[step].set_pair(item, two.low, two.high);
}

template <class F, class... Tiles>
IMBREX_KERNEL void visit_pair(F& f, int row, int column, int step, int item, Tiles&... tiles) {
    [&](auto... pairs) {
        f(row, column, pairs...);
        (write_pair(tiles, step, item, pairs), ...);
    }(tiles.chunks[step].pair(item)...);
}

// f(row, column, two neighbours of each tile), the first in an even column. Tiles that are not const are written.
template <class Warp, class F, class First, class... Others>
IMBREX_KERNEL void visit_vector_row_tiles(const Warp&, use, source, F&& f, First& first, Others&... others) {
    using partition = vector_row_partition<First::columns>;
#pragma unroll
    for (int step = 0; step < First::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            visit_pair(f, partition::row(step), partition::column(step) + item, step, item, first, others...);
        }
    }
}

// (x, y) = (x + y, x - y) of the elements of a lane at this distance.
template <int Distance>
IMBREX_KERNEL void hadamard_step(vector8<float>& chunk) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if ((i & Distance) != 0) continue;
        const float x = __uint_as_float(chunk.words[i]), y = __uint_as_float(chunk.words[i + Distance]);
        chunk.words[i] = __float_as_uint(x + y);
        chunk.words[i + Distance] = __float_as_uint(x - y);
    }
}
// The same between lanes.
IMBREX_KERNEL void hadamard_exchange(vector8<float>& chunk, int distance) {
    const float sign = (lane() & distance) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (std::uint32_t& word : chunk.words) {
        const float own = __uint_as_float(word);
        word = __float_as_uint(fmaf(sign, own, shuffle_xor(own, distance)));
    }
}

template <class Warp, int Rows, int Columns>
IMBREX_KERNEL void hadamard_vector_rows(const Warp&, vector_row_fragment<float, Rows, Columns>& tile, int run, source) {
    using fragment = vector_row_fragment<float, Rows, Columns>;
#pragma unroll
    for (int step = 0; step < fragment::steps; ++step) {
        hadamard_step<1>(tile.chunks[step]);
        hadamard_step<2>(tile.chunks[step]);
        hadamard_step<4>(tile.chunks[step]);
    }
#pragma unroll
    for (int distance = 1; distance < vector_row_partition<Columns>::lanes; distance *= 2) {
        if (8 * distance >= run) continue;
#pragma unroll
        for (int step = 0; step < fragment::steps; ++step) hadamard_exchange(tile.chunks[step], distance);
    }
}

template <class F, class Tile>
IMBREX_KERNEL float fold_tile(float value, F& f, const Tile& tile) {
#pragma unroll
    for (int step = 0; step < Tile::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            const float_pair two = tile.chunks[step].pair(item);
            value = f(f(value, two.low), two.high);
        }
    }
    return value;
}

// value = f(value, element) over the elements of each lane; then op over the lanes.
template <class Warp, class F, class Op, class... Tiles>
IMBREX_KERNEL float reduce_vector_rows(const Warp&, float value, F f, Op op, source, const Tiles&... tiles) {
    ((value = fold_tile(value, f, tiles)), ...);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = op(value, shuffle_xor(value, distance));
    return value;
}

}  // namespace imbrex::hw
