// SIMT GEMV by a warp, without tensor cores: a few rows of x are staged in shared memory (tile/staged_rows.hpp) and any
// number of weight rows are read from global memory, each once. In the host world this is the CPU GEMV / GEMM.
//
//     gemv_accumulator<4, 8> sums;                                         // 4 rows of x, 8 weight rows
//     stage_rows(self, staged, place, rows, columns);                      // place(m): pointer to row m of x
//     self.sync();
//     fill(self, sums, 0.0f);
//     accumulate_products(self, sums, staged, rows, weight_block_at(weights, n, k, 8, columns), true);
//     reduce_lanes(self, sums);
//     store_accumulator(self, place_of_result, sums, rows, 8, [](int n, float sum) { return sum; });
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/products.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/staged_rows.hpp>

#include <utility>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <int Rows, int Columns>
using gemv_accumulator = hw::gemv_accumulator_fragment<Rows, Columns>;

// A block of `rows` x `columns` weights whose first element is (row, column).
template <class Weights>
IMBREX_KERNEL hw::weight_block<Weights> weight_block_at(const Weights& all, int row, int column, int rows,
                                                        int columns) {
    return hw::weight_block<Weights>{all, row, column, rows, columns};
}

// Stages `columns` columns of each row, as floats or quantised to int8, padded with zeros to a whole group of 32.
// Synchronise the warp before the rows are used and before they are staged again.
template <class Staged, class Place>
IMBREX_KERNEL void stage_rows(const warp& scope, Staged& to, Place&& place, int rows, int columns,
                              source here = source::current()) {
    hw::stage_rows(scope, to, std::forward<Place>(place), rows, columns, here);
}

template <int Rows, int Columns>
IMBREX_KERNEL void fill(const warp& scope, hw::gemv_accumulator_fragment<Rows, Columns>& sums, float value,
                        source here = source::current()) {
    hw::fill_accumulator(scope, sums, value, here);
}

// sums[m][n] += x[m] . weights[n] over the part that each lane reads. `is_16_byte_aligned`: rows of weights without
// groups start and end at multiples of 16 bytes; otherwise they are read element by element.
template <int Rows, int Columns, class Staged, class Weights>
IMBREX_KERNEL void accumulate_products(const warp& scope, hw::gemv_accumulator_fragment<Rows, Columns>& sums,
                                       const Staged& x, int rows, const hw::weight_block<Weights>& weights,
                                       bool in_chunks, source here = source::current()) {
    hw::accumulate_products(scope, sums, x, rows, weights, in_chunks, here);
}
// Reduces the sums over the lanes.
template <int Rows, int Columns>
IMBREX_KERNEL void reduce_lanes(const warp& scope, hw::gemv_accumulator_fragment<Rows, Columns>& sums,
                                source here = source::current()) {
    hw::reduce_accumulator(scope, sums, here);
}

// place(m)[n] = function(n, sum), rounded once, for `rows` x `columns` of the sums.
template <int Rows, int Columns, class Place, class Function>
IMBREX_KERNEL void store_accumulator(const warp& scope, Place&& place,
                                     const hw::gemv_accumulator_fragment<Rows, Columns>& sums, int rows, int columns,
                                     Function&& function, source here = source::current()) {
    hw::store_accumulator(scope, std::forward<Place>(place), sums, rows, columns, std::forward<Function>(function),
                          here);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
