// Searches in a long row, of which a warp holds a piece in chunks (tile/vector_row_tile.hpp): the largest element and where it is, exact
// sums, and bins by which an element of a given rank is found without sorting.
//
//     vector_row_tile<float, 1, 1024> piece;
//     map_columns(self, piece, [=](int column, float x) { return column < columns ? x : least; }, piece);
//     const float most = row_max(self, piece);
//     const int column = first_column_of(self, piece, most);
//     change(self, piece, column, [](float x) { return x - 1; });
//     add_to_bins(self, bins[self.index()], piece, bin_of, amount);           // bins of this warp: a shared_vector of std::uint64_t
//     ...                                                                     // a sync
//     const hw::bin_found at = find_bin(self, bins, 0, target);               // over the bins of all warps
//
// Sums are of whole numbers: they are the same in any order. There must be no NaN, and -0 counts as less than 0.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_row_search.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>

namespace imbrex {

// to = function(column, element of from), in float. They may be the same.
template <class T, class From, int Columns, class Function>
IMBREX_KERNEL void map_columns(const warp& scope, hw::vector_row_fragment<T, 1, Columns>& to, Function function,
                               const hw::vector_row_fragment<From, 1, Columns>& from, source here = source::current()) {
    hw::map_vector_row_columns(scope, to, function, from, here);
}

// The element of one column, the same to all lanes, becomes function(element). Of a column outside of the tile there is none.
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
// The number of columns, if no element is equal to the value.
template <int Columns>
IMBREX_KERNEL int first_column_of(const warp& scope, const hw::vector_row_fragment<float, 1, Columns>& tile,
                                  float value, source here = source::current()) {
    return hw::first_vector_row_column_of(scope, tile, value, here);
}

// Of function(column, element), whole numbers.
template <int Columns, class Function>
IMBREX_KERNEL std::uint64_t sum_of(const warp& scope, const hw::vector_row_fragment<float, 1, Columns>& tile,
                                   Function function, source here = source::current()) {
    return hw::vector_row_sum(scope, tile, function, here);
}

// Each element adds amount(column, element) to the bin of number bin_of(column, element), and to none if that is negative. No other warp
// may use these bins meanwhile.
template <class Bins, int Columns, class BinOf, class Amount>
IMBREX_KERNEL void add_to_bins(const warp& scope, Bins& bins, const hw::vector_row_fragment<float, 1, Columns>& tile,
                               BinOf bin_of, Amount amount, source here = source::current()) {
    hw::add_vector_row_to_bins(scope, bins, tile, bin_of, amount, here);
}

// Where the sum over bins, those of all warps taken together and `before` added, reaches the target.
template <class Bins, int Warps>
IMBREX_KERNEL hw::bin_found find_bin(const warp& scope, const Bins (&bins)[Warps], std::uint64_t before,
                                     std::uint64_t target, source here = source::current()) {
    return hw::find_bin(scope, bins, before, target, here);
}

}  // namespace imbrex
