// Column values of vectorised rows, computed in registers, and pairs of elements that are changed together by the
// values of their column. A lane holds the values of its own columns, as do the lanes of other rows.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/vector_row.hpp>

namespace imbrex::hw {

// A value computed by one of several lanes, or by this one alone.
template <int Finders>
IMBREX_KERNEL float shuffle_from(int lane, float value) {
    if constexpr (Finders == 1) {
        return value;
    } else {
        return __shfl_sync(all_lanes, value, lane);
    }
}

// f(column, value of one vector, value of the other) writes both, once per `Run` neighbours that share them, with the
// column of the first. One lane computes; the lanes with the same column of other rows get the result by a shuffle.
template <int Run, class Warp, class F, int Columns>
IMBREX_KERNEL void write_vector_row_columns(const Warp&, source, F&& f,
                                            vector_row_column_fragment<float, Columns>& first,
                                            vector_row_column_fragment<float, Columns>& second) {
    using partition = vector_row_partition<Columns>;
    constexpr int values = 8 / Run, lanes = partition::lanes;
    constexpr int finders = partition::rows_at_once < values ? partition::rows_at_once : values, own = values / finders;
    const int mine = lane() / lanes % finders * own;
#pragma unroll
    for (int step = 0; step < partition::steps; ++step) {
        float one[own], other[own];
#pragma unroll
        for (int i = 0; i < own; ++i) f(partition::column(step) + (mine + i) * Run, one[i], other[i]);
#pragma unroll
        for (int value = 0; value < values; ++value) {
            const int from = value / own * lanes + lane() % lanes;
            const float a = shuffle_from<finders>(from, one[value % own]),
                        b = shuffle_from<finders>(from, other[value % own]);
#pragma unroll
            for (int i = value * Run; i < (value + 1) * Run; ++i) {
                first.chunks[step].words[i] = __float_as_uint(a);
                second.chunks[step].words[i] = __float_as_uint(b);
            }
        }
    }
}

// f(element of one tile, that of the other, the two column values) changes the elements, in float, rounded once.
template <class Warp, class F, class T, int Rows, int Columns>
IMBREX_KERNEL void visit_vector_row_pairs(const Warp&, source, F&& f, vector_row_fragment<T, Rows, Columns>& x,
                                          vector_row_fragment<T, Rows, Columns>& y,
                                          const vector_row_column_fragment<float, Columns>& first,
                                          const vector_row_column_fragment<float, Columns>& second) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            float_pair one = x.chunks[step].pair(item), other = y.chunks[step].pair(item);
            const float_pair a = vector_pair<partition>(first, step, item),
                             b = vector_pair<partition>(second, step, item);
            f(one.low, other.low, a.low, b.low);
            f(one.high, other.high, a.high, b.high);
            x.chunks[step].set_pair(item, one.low, one.high);
            y.chunks[step].set_pair(item, other.low, other.high);
        }
    }
}

// The same for an element in an even column and its right neighbour, by the values of the even column.
template <class Warp, class F, class T, int Rows, int Columns>
IMBREX_KERNEL void visit_vector_row_neighbours(const Warp&, source, F&& f, vector_row_fragment<T, Rows, Columns>& tile,
                                               const vector_row_column_fragment<float, Columns>& first,
                                               const vector_row_column_fragment<float, Columns>& second) {
    using partition = vector_row_partition<Columns>;
#pragma unroll
    for (int step = 0; step < vector_row_fragment<T, Rows, Columns>::steps; ++step) {
#pragma unroll
        for (int item = 0; item < 8; item += 2) {
            float_pair two = tile.chunks[step].pair(item);
            f(two.low, two.high, vector_pair<partition>(first, step, item).low,
              vector_pair<partition>(second, step, item).low);
            tile.chunks[step].set_pair(item, two.low, two.high);
        }
    }
}

}  // namespace imbrex::hw
