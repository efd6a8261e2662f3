// Products of rows by a warp, without matrix instructions: some rows of x staged in shared memory (tile/staged_rows.hpp), and any
// number of rows of weights read from global memory, each once.
//
//     product_sums<4, 8> sums;                                             // 4 rows of x, 8 of weights
//     stage_rows(self, staged, place, rows, columns);                      // place(m): where row m of x begins
//     self.sync();
//     fill(self, sums, 0.0f);
//     add_products(self, sums, staged, rows, weights_from(weights, n, k, 8, columns), true);
//     finish(self, sums);
//     store_products(self, place_of_result, sums, rows, 8, [](int n, float sum) { return sum; });
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/row_products.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/staged_rows.hpp>

#include <utility>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <int Rows, int Columns>
using product_sums = hw::product_fragment<Rows, Columns>;

// Rows of weights from `row` on and columns from `column` on, so many of each.
template <class Weights>
IMBREX_KERNEL hw::weight_piece<Weights> weights_from(const Weights& all, int row, int column, int rows, int columns) {
    return hw::weight_piece<Weights>{all, row, column, rows, columns};
}

// So many columns of each row, as the rows are staged: as floats, or rounded. Zeros behind them, up to a whole group of 32. All lanes
// have to meet before the rows are used, and before they are staged anew.
template <class Staged, class Place>
IMBREX_KERNEL void stage_rows(const warp& scope, Staged& to, Place&& place, int rows, int columns,
                              source here = source::current()) {
    hw::stage_rows(scope, to, std::forward<Place>(place), rows, columns, here);
}

template <int Rows, int Columns>
IMBREX_KERNEL void fill(const warp& scope, hw::product_fragment<Rows, Columns>& sums, float value,
                        source here = source::current()) {
    hw::fill_products(scope, sums, value, here);
}

// sums[m][n] += x[m] . weights[n], over what each lane reads. `in_chunks`: rows of weights that have no groups begin and end at
// multiples of 16 bytes; otherwise they are read one by one.
template <int Rows, int Columns, class Staged, class Weights>
IMBREX_KERNEL void add_products(const warp& scope, hw::product_fragment<Rows, Columns>& sums, const Staged& x, int rows,
                                const hw::weight_piece<Weights>& weights, bool in_chunks,
                                source here = source::current()) {
    hw::add_products(scope, sums, x, rows, weights, in_chunks, here);
}
// Afterwards sums are those of all lanes.
template <int Rows, int Columns>
IMBREX_KERNEL void finish(const warp& scope, hw::product_fragment<Rows, Columns>& sums,
                          source here = source::current()) {
    hw::finish_products(scope, sums, here);
}

// place(m)[n] = function(n, sum), rounded once, for so many rows and columns of the sums.
template <int Rows, int Columns, class Place, class Function>
IMBREX_KERNEL void store_products(const warp& scope, Place&& place, const hw::product_fragment<Rows, Columns>& sums,
                                  int rows, int columns, Function&& function, source here = source::current()) {
    hw::store_products(scope, std::forward<Place>(place), sums, rows, columns, std::forward<Function>(function), here);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
