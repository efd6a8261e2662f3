// Searches in a long row, of which a warp holds a segment as vectorised rows (tile/vector_row_tile.hpp): the maximum
// and its column, exact sums, and histogram bins that select an element of a given rank without sorting (radix select).
//
//     vector_row_tile<float, 1, 1024> segment;
//     map_columns(self, segment, [=](int column, float x) { return column < columns ? x : lowest; }, segment);
//     const float maximum = row_max(self, segment);
//     const int column = first_column_of(self, segment, maximum);
//     change(self, segment, column, [](float x) { return x - 1; });
//     add_to_bins(self, bins[self.index()], segment, bin_of, amount);         // bins of this warp, std::uint64_t
//     ...                                                                     // a sync
//     const hw::bin_found at = find_bin(self, bins, 0, target);               // over the bins of all warps
//
// Sums are of integers, so they do not depend on the order. NaN is not allowed, and -0 counts as less than 0.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

// to = function(column, element of from), in float. Both may be the same tile.
template <class T, class From, int Columns, class Function>
IMBREX_KERNEL void map_columns(const warp& scope, hw::vector_row_fragment<T, 1, Columns>& to, Function function,
                               const hw::vector_row_fragment<From, 1, Columns>& from, source here = source::current()) {
    hw::map_vector_row_columns(scope, to, function, from, here);
}

// The element of one column, uniform over the lanes, becomes function(element). A column outside the tile has no
// effect.
template <int Columns, class Function>
IMBREX_KERNEL void change(const warp& scope, hw::vector_row_fragment<float, 1, Columns>& tile, int column,
                          Function function, source here = source::current()) {
    hw::update_vector_row_element(scope, tile, column, function, here);
}

template <int Columns>
IMBREX_KERNEL float row_max(const warp& scope, const hw::vector_row_fragment<float, 1, Columns>& tile,
                            source here = source::current()) {
    return hw::vector_row_max(scope, tile, here);
}
// The first column whose element equals the value, or the number of columns.
template <int Columns>
IMBREX_KERNEL int first_column_of(const warp& scope, const hw::vector_row_fragment<float, 1, Columns>& tile,
                                  float value, source here = source::current()) {
    return hw::first_vector_row_column_of(scope, tile, value, here);
}

// The sum of function(column, element), which returns integers.
template <int Columns, class Function>
IMBREX_KERNEL std::uint64_t sum_of(const warp& scope, const hw::vector_row_fragment<float, 1, Columns>& tile,
                                   Function function, source here = source::current()) {
    return hw::vector_row_sum(scope, tile, function, here);
}

// Adds amount(column, element) to bin bin_of(column, element), or to none if that is negative. No other warp may use
// these bins meanwhile.
template <class Bins, int Columns, class BinOf, class Amount>
IMBREX_KERNEL void add_to_bins(const warp& scope, Bins& bins, const hw::vector_row_fragment<float, 1, Columns>& tile,
                               BinOf bin_of, Amount amount, source here = source::current()) {
    hw::add_vector_row_to_bins(scope, bins, tile, bin_of, amount, here);
}

// The bin at which the running sum over the bins of all warps, starting from `before`, reaches the target.
template <class Bins, int Warps>
IMBREX_KERNEL hw::bin_found find_bin(const warp& scope, const Bins (&bins)[Warps], std::uint64_t before,
                                     std::uint64_t target, source here = source::current()) {
    return hw::find_bin(scope, bins, before, target, here);
}

}  // namespace imbrex
