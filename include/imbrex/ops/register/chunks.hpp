// Operations on rows that a warp holds in chunks (tile/chunk_tile.hpp): rows from and to anywhere, functions of elements
// in float, and row reductions.
//
//     chunk_tile<bf16, 4, 256> x, y;
//     chunk_row_values<decltype(x)> sums;
//     load_rows_from(self, x, place, columns);                         // place(row): a pointer, or null where there is no row
//     fill(self, sums, 0.0f);
//     fold_rows(self, sums, x, [](float sum, float a) { return sum + a; });
//     finish_rows(self, sums, add{});
//     transform(self, y, [](float a, float sum) { return a / sum; }, x, sums);
//     store_rows_to(self, place_of_result, y, columns);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/chunks.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/chunk_tile.hpp>

#include <utility>

namespace imbrex {

// What is known of rows in memory.
enum class row_chunks {
    whole,   // they begin at multiples of 16 bytes and have a multiple of 8 columns: 16 bytes are moved at a time
    ragged,  // nothing
};

// So many columns of each row; behind them, and where there is no row, are zeros.
template <row_chunks Known, class T, int Rows, int Columns, class Place>
IMBREX_KERNEL void load_rows_from(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& to, Place&& place,
                                  int columns, source here = source::current()) {
    hw::load_row_chunks<Known == row_chunks::whole>(scope, to, std::forward<Place>(place), columns, here);
}
template <row_chunks Known, class T, int Rows, int Columns, class Place>
IMBREX_KERNEL void store_rows_to(const warp& scope, Place&& place, const hw::chunk_fragment<T, Rows, Columns>& from,
                                 int columns, source here = source::current()) {
    hw::store_row_chunks<Known == row_chunks::whole>(scope, std::forward<Place>(place), from, columns, here);
}
template <row_chunks Known, class T, int Columns>
IMBREX_KERNEL void load(const warp& scope, hw::chunk_column_fragment<T, Columns>& to, const T* from, int columns,
                        source here = source::current()) {
    hw::load_column_chunks<Known == row_chunks::whole>(scope, to, from, columns, here);
}

// to = function(first, ...), in float and rounded once to the type of `to`, which may be among them. What it is made from are tiles
// of the same shape, of any type, and values of its rows or columns.
template <class T, int Rows, int Columns, class Function, class First>
IMBREX_KERNEL void transform(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, source here = source::current()) {
    hw::transform_chunks(scope, to, std::forward<Function>(function), here, first);
}
template <class T, int Rows, int Columns, class Function, class First, class Second>
IMBREX_KERNEL void transform(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, const Second& second, source here = source::current()) {
    hw::transform_chunks(scope, to, std::forward<Function>(function), here, first, second);
}
template <class T, int Rows, int Columns, class Function, class First, class Second, class Third>
IMBREX_KERNEL void transform(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, const Second& second, const Third& third,
                             source here = source::current()) {
    hw::transform_chunks(scope, to, std::forward<Function>(function), here, first, second, third);
}

template <int Rows, int Columns>
IMBREX_KERNEL void fill(const warp& scope, hw::chunk_row_fragment<float, Rows, Columns>& values, float value,
                        source here = source::current()) {
    hw::fill_chunk_rows(scope, values, value, here);
}
// value = function(value)
template <int Rows, int Columns, class Function>
IMBREX_KERNEL void map(const warp& scope, hw::chunk_row_fragment<float, Rows, Columns>& values, Function&& function,
                       source here = source::current()) {
    hw::transform_chunk_rows(scope, values, std::forward<Function>(function), here);
}

// value of a row = function(value, element), over what each lane has of it. All lanes begin with the value: it must change nothing.
template <class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void fold_rows(const warp& scope, hw::chunk_row_fragment<float, Rows, Columns>& values,
                             const hw::chunk_fragment<T, Rows, Columns>& tile, Function&& function,
                             source here = source::current()) {
    hw::fold_chunk_rows(scope, values, tile, std::forward<Function>(function), here);
}
// Afterwards all lanes of a row have op over what each of them had.
template <int Rows, int Columns, class Op>
IMBREX_KERNEL void finish_rows(const warp& scope, hw::chunk_row_fragment<float, Rows, Columns>& values, Op op,
                               source here = source::current()) {
    hw::combine_chunk_rows(scope, values, op, here);
}

// The value of a tile's only row, the same to all lanes.
template <class T, int Columns>
IMBREX_KERNEL T row_value(const warp& scope, const hw::chunk_row_fragment<T, 1, Columns>& values,
                          source here = source::current()) {
    return hw::only_row_value(scope, values, here);
}

}  // namespace imbrex
