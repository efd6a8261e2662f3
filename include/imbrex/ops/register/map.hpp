// Elementwise operations on register tiles and their vectors, at any scope. A function object computes the element. The
// `_indexed` forms also pass its row and column.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// Every element becomes `value`.
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL void fill(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile, T value,
                        source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::write, here, [&](int, int, T& element) { element = value; }, tile);
}
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void fill(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values, T value,
                        source here = source::current()) {
    hw::visit_rows(
        scope, hw::use::write, here, [&](int, T& element) { element = value; }, values);
}
template <class Scope, class T, int Columns>
IMBREX_KERNEL void fill(const Scope& scope, hw::column_fragment<T, Columns>& values, T value,
                        source here = source::current()) {
    hw::visit_columns(
        scope, hw::use::write, here, [&](int, T& element) { element = value; }, values);
}

// element = function(element)
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Function>
IMBREX_KERNEL void map(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile, Function function,
                       source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here, [&](int, int, T& element) { element = function(element); }, tile);
}
template <class Scope, class T, int Rows, int Warps, class Function>
IMBREX_KERNEL void map(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values, Function function,
                       source here = source::current()) {
    hw::visit_rows(
        scope, hw::use::update, here, [&](int, T& element) { element = function(element); }, values);
}
template <class Scope, class T, int Columns, class Function>
IMBREX_KERNEL void map(const Scope& scope, hw::column_fragment<T, Columns>& values, Function function,
                       source here = source::current()) {
    hw::visit_columns(
        scope, hw::use::update, here, [&](int, T& element) { element = function(element); }, values);
}

// element = function(row, column, element)
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Function>
IMBREX_KERNEL void map_indexed(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                               Function function, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here,
        [&](int row, int column, T& element) { element = function(row, column, element); }, tile);
}

template <class Scope, class T, int Rows, int Warps, class Function>
IMBREX_KERNEL void map_indexed(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values, Function function,
                               source here = source::current()) {
    hw::visit_rows(
        scope, hw::use::update, here, [&](int row, T& element) { element = function(row, element); }, values);
}

// tile = function(tile, other), element by element
template <class Scope, class T, class U, int Rows, int Columns, int Warps, register_layout Layout, class Function>
IMBREX_KERNEL void combine(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                           const hw::fragment<U, Rows, Columns, Warps, Layout>& other, Function function,
                           source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here,
        [&](int, int, T& element, const U& second) { element = function(element, second); }, tile, other);
}
template <class Scope, class T, int Rows, int Warps, class Function>
IMBREX_KERNEL void combine(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values,
                           const hw::row_fragment<T, Rows, Warps>& other, Function function,
                           source here = source::current()) {
    hw::visit_rows(
        scope, hw::use::update, here, [&](int, T& element, const T& second) { element = function(element, second); },
        values, other);
}
template <class Scope, class T, class U, class V, int Rows, int Warps, class Function>
IMBREX_KERNEL void combine(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values,
                           const hw::row_fragment<U, Rows, Warps>& other, const hw::row_fragment<V, Rows, Warps>& third,
                           Function function, source here = source::current()) {
    hw::visit_rows(
        scope, hw::use::update, here,
        [&](int, T& element, const U& second, const V& last) { element = function(element, second, last); }, values,
        other, third);
}
template <class Scope, class T, int Columns, class Function>
IMBREX_KERNEL void combine(const Scope& scope, hw::column_fragment<T, Columns>& values,
                           const hw::column_fragment<T, Columns>& other, Function function,
                           source here = source::current()) {
    hw::visit_columns(
        scope, hw::use::update, here, [&](int, T& element, const T& second) { element = function(element, second); },
        values, other);
}

// element = function(element, value of its row)
template <class Scope, class T, class U, int Rows, int Columns, int Warps, register_layout Layout, class Function>
IMBREX_KERNEL void combine_with_rows(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                                     const hw::row_fragment<U, Rows, Warps>& values, Function function,
                                     source here = source::current()) {
    static_assert(Layout == register_layout::row_major, "imbrex: row values need a row-major register tile");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here, [&](int, int, T& element, const U& value) { element = function(element, value); },
        tile, values);
}

// Multiplies rows by factors most of which are one: a warp skips the multiplication if all of its factors are one.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void rescale_rows(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& tile,
                                const hw::row_fragment<float, Rows, Warps>& factors, source here = source::current()) {
    hw::if_any_row(
        scope, factors, [](float factor) { return factor != 1.0f; },
        [&] { combine_with_rows(scope, tile, factors, functional::multiply{}, here); }, here);
}

// element = function(element, other's element, value of its row)
template <class Scope, class T, class U, class V, int Rows, int Columns, int Warps, register_layout Layout,
          class Function>
IMBREX_KERNEL void combine_with_rows(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                                     const hw::fragment<U, Rows, Columns, Warps, Layout>& other,
                                     const hw::row_fragment<V, Rows, Warps>& values, Function function,
                                     source here = source::current()) {
    static_assert(Layout == register_layout::row_major, "imbrex: row values need a row-major register tile");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here,
        [&](int, int, T& element, const U& second, const V& value) { element = function(element, second, value); },
        tile, other, values);
}

// The same for columns First, First + 1, ... of a tile; `other` has only these.
template <int First, class Scope, class T, class U, class V, int Rows, int Columns, int Count, int Warps,
          class Function>
IMBREX_KERNEL void combine_columns_with_rows(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& tile,
                                             const hw::fragment<U, Rows, Count, Warps>& other,
                                             const hw::row_fragment<V, Rows, Warps>& values, Function function,
                                             source here = source::current()) {
    static_assert(First >= 0 && Count > 0 && First + Count <= Columns && First % 16 == 0,
                  "imbrex: columns are combined inside a register tile, starting at a multiple of 16");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::visit_columns_of<First>(
        scope, here, [&](T& element, const U& second, const V& value) { element = function(element, second, value); },
        tile, other, values);
}

// element = function(element, value of its column)
template <class Scope, class T, class U, int Rows, int Columns, int Warps, register_layout Layout, class Function>
IMBREX_KERNEL void combine_with_columns(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                                        const hw::column_fragment<U, Columns>& values, Function function,
                                        source here = source::current()) {
    static_assert(Layout == register_layout::row_major, "imbrex: column values need a row-major register tile");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here, [&](int, int, T& element, const U& value) { element = function(element, value); },
        tile, values);
}

// element = function(element, other's element, value of its column)
template <class Scope, class T, class U, class V, int Rows, int Columns, int Warps, register_layout Layout,
          class Function>
IMBREX_KERNEL void combine_with_columns(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile,
                                        const hw::fragment<U, Rows, Columns, Warps, Layout>& other,
                                        const hw::column_fragment<V, Columns>& values, Function function,
                                        source here = source::current()) {
    static_assert(Layout == register_layout::row_major, "imbrex: column values need a row-major register tile");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here,
        [&](int, int, T& element, const U& second, const V& value) { element = function(element, second, value); },
        tile, other, values);
}

// The transpose in the other layout: the same registers, nothing moves.
template <class T, int Rows, int Columns, int Warps, register_layout Layout>
IMBREX_KERNEL auto transpose_of(const hw::fragment<T, Rows, Columns, Warps, Layout>& tile) {
    return hw::transposed(tile);
}

// Columns First to First + Count - 1 of a tile, as a tile.
template <int First, int Count, class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL hw::fragment<T, Rows, Count, Warps> columns_of(const Scope& scope,
                                                             const hw::fragment<T, Rows, Columns, Warps>& tile,
                                                             source here = source::current()) {
    static_assert(First >= 0 && Count > 0 && First + Count <= Columns && First % 16 == 0,
                  "imbrex: columns are taken from inside a register tile, starting at a multiple of 16");
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    return hw::columns_of<First, Count>(scope, tile, here);
}

// Row values First to First + Count - 1 as a vector, at warp scope.
template <int First, int Count, class Scope, class T, int Rows>
IMBREX_KERNEL hw::row_fragment<T, Count, 1> rows_of(const Scope& scope, const hw::row_fragment<T, Rows, 1>& values,
                                                    source here = source::current()) {
    static_assert(First >= 0 && Count > 0 && First + Count <= Rows && First % 16 == 0 && Count % 16 == 0,
                  "imbrex: row values are taken in multiples of 16");
    return hw::rows_of<First, Count>(scope, values, here);
}

// One column of an eight-column tile as row values. The index may be known only at run time.
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL hw::row_fragment<T, Rows, Warps> column_of(const Scope& scope,
                                                         const hw::fragment<T, Rows, 8, Warps>& tile, int column,
                                                         source here = source::current()) {
    static_assert(sizeof(T) == 4, "imbrex: a column is taken from a register tile of 32-bit elements");
    require_scope<Scope, hw::fragment<T, Rows, 8, Warps>>();
    return hw::column_of(scope, tile, column, here);
}

}  // namespace imbrex
