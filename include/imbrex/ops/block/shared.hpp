// Operations on shared tiles themselves, their elements dealt over the threads of any scope. Each thread meets the same
// elements of same-shaped tiles every time, so such operations may follow one another with no sync between, unless they say
// otherwise.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/copy.hpp>
#include <imbrex/hw/scalar.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class Scope, class T, int Rows, int Columns>
IMBREX_KERNEL void fill(const Scope& scope, shared_tile<T, Rows, Columns>& tile, T value,
                        source here = source::current()) {
    hw::visit_shared(
        scope, hw::use::write, here, [&](int, int, T& element) { element = value; }, tile);
}

// The same for rows from `first` on. Sixteen bytes at a time: threads do not meet the elements that they have in other operations.
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

// One element of a shared vector: written by one thread, read by all. A sync belongs between.
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
