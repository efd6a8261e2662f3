// Elementwise operations on shared tiles, distributed over the threads of any scope. Every operation assigns the same
// elements of equally shaped tiles to a thread, so operations may follow each other without a sync unless noted.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class Scope, class T, int Rows, int Columns>
IMBREX_KERNEL void fill(const Scope& scope, shared_tile<T, Rows, Columns>& tile, T value,
                        source here = source::current()) {
    hw::visit_shared(
        scope, hw::use::write, here, [&](int, int, T& element) { element = value; }, tile);
}

// The same for rows from `first` on, 16 bytes at a time. The assignment of elements to threads differs from that of the
// other operations.
template <class Scope, class T, int Rows, int Columns>
IMBREX_KERNEL void fill_rows(const Scope& scope, shared_tile<T, Rows, Columns>& tile, int first, T value,
                             source here = source::current()) {
    hw::fill_rows(scope, tile, first, value, here);
}

// element = function(element)
template <class Scope, class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void map(const Scope& scope, shared_tile<T, Rows, Columns>& tile, Function function,
                       source here = source::current()) {
    hw::visit_shared(
        scope, hw::use::update, here, [&](int, int, T& element) { element = function(element); }, tile);
}

// element = function(row, column, element)
template <class Scope, class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void map_indexed(const Scope& scope, shared_tile<T, Rows, Columns>& tile, Function function,
                               source here = source::current()) {
    hw::visit_shared(
        scope, hw::use::update, here,
        [&](int row, int column, T& element) { element = function(row, column, element); }, tile);
}

// tile = function(tile, other), element by element
template <class Scope, class T, class U, int Rows, int Columns, class Function>
IMBREX_KERNEL void combine(const Scope& scope, shared_tile<T, Rows, Columns>& tile,
                           const shared_tile<U, Rows, Columns>& other, Function function,
                           source here = source::current()) {
    hw::visit_shared(
        scope, hw::use::update, here,
        [&](int, int, T& element, const U& second) { element = function(element, second); }, tile, other);
}

// Every element of a shared vector becomes function(its index).
template <class Scope, class T, int Length, class Function>
IMBREX_KERNEL void fill_indexed(const Scope& scope, shared_vector<T, Length>& vector, Function function,
                                source here = source::current()) {
    hw::visit_vector(
        scope, hw::use::write, here, [&](int index, T& element) { element = function(index); }, vector);
}

// One element of a shared vector: one thread writes it, all read it. A sync is needed in between.
template <class Scope, class T, int Length>
IMBREX_KERNEL void put(const Scope& scope, shared_vector<T, Length>& vector, int index, T value,
                       source here = source::current()) {
    hw::put(scope, vector, index, value, here);
}
template <class Scope, class T, int Length>
IMBREX_KERNEL T get(const Scope& scope, const shared_vector<T, Length>& vector, int index,
                    source here = source::current()) {
    return hw::get(scope, vector, index, here);
}

}  // namespace imbrex
