// Operations on vectorised rows (tile/vector_row_tile.hpp): loads and stores of rows at arbitrary addresses,
// elementwise functions in float, and row reductions.
//
//     vector_row_tile<bf16, 4, 256> x, y;
//     vector_row_values<decltype(x)> sums;
//     load_rows_from(self, x, row_pointer, columns);                   // row_pointer(row): an address, or null
//     fill(self, sums, 0.0f);
//     fold_rows(self, sums, x, [](float sum, float a) { return sum + a; });
//     finish_rows(self, sums, functional::add{});
//     transform(self, y, [](float a, float sum) { return a / sum; }, x, sums);
//     store_rows_to(self, result_pointer, y, columns);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <utility>

namespace imbrex {

// The alignment of rows in memory.
enum class row_alignment {
    // Rows begin at multiples of 16 bytes (8-bit elements: 8) and have a multiple of 8 columns: vector accesses.
    aligned,
    unaligned,  // no guarantee
};

// The first `columns` columns of each row; the rest, and rows without a pointer, are zero.
template <row_alignment Known, class T, int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void load_rows_from(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to,
                                  RowPointer&& row_pointer, int columns, source here = source::current()) {
    hw::load_vector_rows<Known == row_alignment::aligned>(scope, to, std::forward<RowPointer>(row_pointer), columns,
                                                          here);
}
template <row_alignment Known, class T, int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void store_rows_to(const warp& scope, RowPointer&& row_pointer,
                                 const hw::vector_row_fragment<T, Rows, Columns>& from, int columns,
                                 source here = source::current()) {
    hw::store_vector_rows<Known == row_alignment::aligned>(scope, std::forward<RowPointer>(row_pointer), from, columns,
                                                           here);
}
// The same for every eight columns: chunk_pointer(row, first column), aligned as above, or null.
template <class T, int Rows, int Columns, class ChunkPointer>
IMBREX_KERNEL void load_chunks_from(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to,
                                    ChunkPointer&& chunk_pointer, source here = source::current()) {
    hw::load_vector_chunks(scope, to, std::forward<ChunkPointer>(chunk_pointer), here);
}
template <class T, int Rows, int Columns, class ChunkPointer>
IMBREX_KERNEL void store_chunks_to(const warp& scope, ChunkPointer&& chunk_pointer,
                                   const hw::vector_row_fragment<T, Rows, Columns>& from,
                                   source here = source::current()) {
    hw::store_vector_chunks(scope, std::forward<ChunkPointer>(chunk_pointer), from, here);
}
template <row_alignment Known, class T, int Columns>
IMBREX_KERNEL void load(const warp& scope, hw::vector_row_column_fragment<T, Columns>& to, const T* from, int columns,
                        source here = source::current()) {
    hw::load_vector_row_columns<Known == row_alignment::aligned>(scope, to, from, columns, here);
}

// function(column, element of first, element of second) writes both vectors: float references.
template <int Columns, class Function>
IMBREX_KERNEL void fill_columns(const warp& scope, Function&& function,
                                hw::vector_row_column_fragment<float, Columns>& first,
                                hw::vector_row_column_fragment<float, Columns>& second,
                                source here = source::current()) {
    hw::write_vector_row_columns<1>(scope, here, std::forward<Function>(function), first, second);
}

// to = function(first, ...), in float, rounded once to the element type of `to`, which may be among the arguments. The
// arguments are tiles of the same shape, of any element type, and values of its rows or columns.
template <class T, int Rows, int Columns, class Function, class First>
IMBREX_KERNEL void transform(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, source here = source::current()) {
    hw::transform_vector_rows(scope, to, std::forward<Function>(function), here, first);
}
template <class T, int Rows, int Columns, class Function, class First, class Second>
IMBREX_KERNEL void transform(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, const Second& second, source here = source::current()) {
    hw::transform_vector_rows(scope, to, std::forward<Function>(function), here, first, second);
}
template <class T, int Rows, int Columns, class Function, class First, class Second, class Third>
IMBREX_KERNEL void transform(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, const Second& second, const Third& third,
                             source here = source::current()) {
    hw::transform_vector_rows(scope, to, std::forward<Function>(function), here, first, second, third);
}

template <class T, int Rows, int Columns, class Function, class First, class Second, class Third, class Fourth,
          class Fifth>
IMBREX_KERNEL void transform(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& to, Function&& function,
                             const First& first, const Second& second, const Third& third, const Fourth& fourth,
                             const Fifth& fifth, source here = source::current()) {
    hw::transform_vector_rows(scope, to, std::forward<Function>(function), here, first, second, third, fourth, fifth);
}

template <int Rows, int Columns>
IMBREX_KERNEL void fill(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values, float value,
                        source here = source::current()) {
    hw::fill_vector_row_values(scope, values, value, here);
}
template <class T, int Columns>
IMBREX_KERNEL void fill(const warp& scope, hw::vector_row_column_fragment<T, Columns>& values, T value,
                        source here = source::current()) {
    hw::fill_vector_row_columns(scope, values, value, here);
}
// value = function(value)
template <int Rows, int Columns, class Function>
IMBREX_KERNEL void map(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values,
                       Function&& function, source here = source::current()) {
    hw::transform_vector_row_values(scope, values, std::forward<Function>(function), here);
}
// value = function(value, other)
template <int Rows, int Columns, class Function>
IMBREX_KERNEL void combine(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values,
                           const hw::vector_row_values_fragment<float, Rows, Columns>& other, Function&& function,
                           source here = source::current()) {
    hw::visit_vector_row_values(
        scope, hw::use::update, here, [&](int, float& value, const float& second) { value = function(value, second); },
        values, other);
}

// value of a row = function(value, element), over the elements of each lane. Every lane starts with the value, so it
// must be the identity.
template <class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void fold_rows(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values,
                             const hw::vector_row_fragment<T, Rows, Columns>& tile, Function&& function,
                             source here = source::current()) {
    hw::fold_vector_rows(scope, values, tile, std::forward<Function>(function), here);
}
// The same over the first `columns` columns only, with another value of the row: value = function(value, element,
// other). For functions to which the zeros past the end of a row would count, such as squared deviations from a mean.
template <row_alignment Known, class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void fold_rows(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values,
                             const hw::vector_row_fragment<T, Rows, Columns>& tile, Function&& function,
                             const hw::vector_row_values_fragment<float, Rows, Columns>& other, int columns,
                             source here = source::current()) {
    hw::fold_vector_row_columns<Known == row_alignment::aligned>(scope, values, tile, std::forward<Function>(function),
                                                                 other, columns, here);
}
// Combines the lanes of a row: afterwards each has op over the values of all of them.
template <int Rows, int Columns, class Op>
IMBREX_KERNEL void finish_rows(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& values, Op op,
                               source here = source::current()) {
    hw::combine_vector_row_values(scope, values, op, here);
}

// The value of a tile's only row, uniform over the lanes.
template <class T, int Columns>
IMBREX_KERNEL T row_value(const warp& scope, const hw::vector_row_values_fragment<T, 1, Columns>& values,
                          source here = source::current()) {
    return hw::only_row_value(scope, values, here);
}

}  // namespace imbrex
