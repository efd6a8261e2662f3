// Synchronous copies of the host world between registers and shared or global memory. Copies between shared and global
// memory are in hw/host/copy_shared.hpp. The out-of-bounds part is filled by loads and skipped by stores.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/hw/host/copy_shared.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstring>

namespace imbrex::hw {

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Shared>
void load_shared(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to, const Shared& from,
                 source here = source::current()) {
    const context c = enter(scope, "load from shared memory", here);
    if (!c) return;
    if (c.checked())
        touch_ordinary(*c.on, *c.by, from, false, partition_way_of<Layout>, "load from shared memory", here);
    touch_fragment(c, to, use::write, "load from shared memory", here);
    for (int row = 0; row < Rows; ++row) std::memcpy(&to.at(row, 0), from.address(row, 0), Columns * sizeof(T));
    spend_lanes(c, Rows * Columns / 4, "load");
}

// On the device, loads into the register order of a matrix instruction.
template <mma_operand Operand, class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout,
          class Shared>
void load_operand(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to, const Shared& from,
                  source here = source::current()) {
    load_shared(scope, to, from, here);
}

// Eight rows as the first half of a B operand; the other half is zero.
template <class T, int Columns, class Shared>
void load_eight_rows(const warp& scope, fragment<T, 16, Columns, 1>& to, const Shared& from, source here) {
    const char* what = "load of eight rows from shared memory";
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, from, false, partitioned_by_fragment, what, here);
    touch_fragment(c, to, use::write, what, here);
    for (int row = 0; row < 8; ++row) std::memcpy(&to.at(row, 0), from.address(row, 0), Columns * sizeof(T));
    std::fill(&to.at(8, 0), &to.at(15, Columns - 1) + 1, T{});
    spend_lanes(c, 8 * Columns / 4, "load");
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Shared>
void store_shared(const Scope& scope, Shared&& to, const fragment<T, Rows, Columns, Warps, Layout>& from,
                  source here = source::current()) {
    const context c = enter(scope, "store to shared memory", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store to shared memory", here);
    if (c.checked()) touch_ordinary(*c.on, *c.by, to, true, partition_way_of<Layout>, "store to shared memory", here);
    for (int row = 0; row < Rows; ++row) std::memcpy(to.address(row, 0), &from.at(row, 0), Columns * sizeof(T));
    spend_lanes(c, Rows * Columns / 4, "store");
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout>
void load_global(const Scope& scope, fragment<T, Rows, Columns, Warps, Layout>& to, global_tile<const T> from, T fill,
                 source here = source::current()) {
    const context c = enter(scope, "load from global memory", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load from global memory", here);
    touch_global_tile(c, from, Rows, Columns, global_use::read, partition_way_of<Layout>, "load from global memory",
                      here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) {
            to.at(row, column) = from.has(row, column) ? *from.at(row, column) : fill;
        }
    }
    spend_lanes(c, Rows * Columns, "load");
}

template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout>
void store_global(const Scope& scope, global_tile<T> to, const fragment<T, Rows, Columns, Warps, Layout>& from,
                  source here = source::current()) {
    const context c = enter(scope, "store to global memory", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store to global memory", here);
    touch_global_tile(c, to, Rows, Columns, global_use::write, partition_way_of<Layout>, "store to global memory",
                      here);
    const int rows = std::min(Rows, to.rows);
    const int columns = std::min(Columns, to.columns);
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) *to.at(row, column) = from.at(row, column);
    }
    spend_lanes(c, Rows * Columns, "store");
}

// Rows at arbitrary addresses row_pointer(row): loads `fill` if that is null, and stores nothing.
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
void gather_rows(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, RowPointer&& row_pointer, T fill,
                 source here = source::current()) {
    const char* what = "load of rows from global memory";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, to, use::write, what, here);
    for (int row = 0; row < Rows; ++row) {
        const T* const from = row_pointer(row);
        if (from != nullptr) touch_global_row(c, from, Columns, global_use::read, row, what, here);
        for (int column = 0; column < Columns; ++column) to.at(row, column) = from != nullptr ? from[column] : fill;
    }
    spend_lanes(c, Rows * Columns, "load");
}
template <class Scope, class T, int Rows, int Columns, int Warps, class RowPointer>
void scatter_rows(const Scope& scope, RowPointer&& row_pointer, const fragment<T, Rows, Columns, Warps>& from,
                  source here = source::current()) {
    const char* what = "store of rows to global memory";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_fragment(c, from, use::read, what, here);
    for (int row = 0; row < Rows; ++row) {
        T* const to = row_pointer(row);
        if (to != nullptr) touch_global_row(c, to, Columns, global_use::write, row, what, here);
        if (to != nullptr) std::copy(&from.at(row, 0), &from.at(row, 0) + Columns, to);
    }
    spend_lanes(c, Rows * Columns, "store");
}

// The registers of a warp to memory and back. On the device four lanes hold a row's value.
template <class Fragment, class T>
void save_lanes(const warp& scope, T* place, const Fragment& from, source here) {
    const context c = enter(scope, "store of a warp's registers", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store of a warp's registers", here);
    touch_global_values(c, place, static_cast<int>(std::size(from.values)), global_use::write, partitioned_by_fragment,
                        "store of a warp's registers", here);
    std::copy(std::begin(from.values), std::end(from.values), place);
    spend_lanes(c, static_cast<int>(std::size(from.values)), "store");
}
template <class Fragment, class T>
void restore_lanes(const warp& scope, Fragment& to, const T* place, source here) {
    const context c = enter(scope, "load of a warp's registers", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load of a warp's registers", here);
    touch_global_values(c, place, static_cast<int>(std::size(to.values)), global_use::read, partitioned_by_fragment,
                        "load of a warp's registers", here);
    std::copy(place, place + std::size(to.values), std::begin(to.values));
    spend_lanes(c, static_cast<int>(std::size(to.values)), "load");
}

// Sets every element of the rectangle to `value`.
template <class Scope, class T>
void fill_global(const Scope& scope, const global_tile<T>& to, T value, source here = source::current()) {
    const context c = enter(scope, "fill of global memory", here);
    if (!c) return;
    touch_global_tile(c, to, to.rows, to.columns, global_use::write, partitioned_by_elements, "fill of global memory",
                      here);
    for (int row = 0; row < to.rows; ++row) {
        for (int column = 0; column < to.columns; ++column) *to.at(row, column) = value;
    }
    spend_lanes(c, std::max(to.rows, 0) * std::max(to.columns, 0), "store");
}

// Row and column values from and to plain memory (global, or a shared vector through the operations of ops/).
template <class Scope, class Fragment, class T>
void load_values(const Scope& scope, Fragment& to, const T* from, int valid, T fill, int way, source here) {
    const context c = enter(scope, "load of a vector", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "load of a vector", here);
    const int length = static_cast<int>(std::size(to.values));
    touch_global_values(c, from, std::min(length, valid), global_use::read, way, "load of a vector", here);
    for (int i = 0; i < length; ++i) to.values[i] = i < valid ? from[i] : fill;
}
template <class Scope, class Fragment, class T>
void store_values(const Scope& scope, T* to, int valid, const Fragment& from, source here) {
    const context c = enter(scope, "store of a vector", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store of a vector", here);
    const int length = std::min(valid, static_cast<int>(std::size(from.values)));
    touch_global_values(c, to, length, global_use::write, partitioned_by_fragment, "store of a vector", here);
    for (int i = 0; i < length; ++i) to[i] = from.values[i];
}
template <class Scope, class T, int Rows, int Warps>
void load_rows(const Scope& scope, row_fragment<T, Rows, Warps>& to, const T* from, int valid, T fill,
               source here = source::current()) {
    load_values(scope, to, from, valid, fill, partitioned_by_fragment, here);
}
template <class Scope, class T, int Rows, int Warps>
void store_rows(const Scope& scope, T* to, int valid, const row_fragment<T, Rows, Warps>& from,
                source here = source::current()) {
    store_values(scope, to, valid, from, here);
}
template <class Scope, class T, int Columns>
void load_columns(const Scope& scope, column_fragment<T, Columns>& to, const T* from, int valid, T fill,
                  source here = source::current()) {
    load_values(scope, to, from, valid, fill, 0, here);
}
template <class Scope, class T, int Columns>
void store_columns(const Scope& scope, T* to, int valid, const column_fragment<T, Columns>& from,
                   source here = source::current()) {
    store_values(scope, to, valid, from, here);
}

// Row and column values from and to shared vectors.
template <class Scope, class Fragment, class Vector>
void load_vector(const Scope& scope, Fragment& to, const Vector& from, source here) {
    const context c = enter(scope, "load of a shared vector", here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, from, false, 0, "load of a shared vector", here);
    touch_fragment(c, to, use::write, "load of a shared vector", here);
    std::copy(from.address(0), from.address(0) + Vector::length, to.values);
}
template <class Scope, class Fragment, class Vector>
void store_vector(const Scope& scope, Vector& to, const Fragment& from, source here) {
    const context c = enter(scope, "store to a shared vector", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "store to a shared vector", here);
    if (c.checked()) touch_ordinary(*c.on, *c.by, to, true, partitioned_by_fragment, "store to a shared vector", here);
    std::copy(from.values, from.values + Vector::length, to.address(0));
}

// The warps of a warpgroup combine partial column values through shared memory. Here they are complete already; the
// scratch is only marked as written and read.
template <class T, int Columns, class Vector, class Op>
void exchange_columns(const warpgroup& scope, column_fragment<T, Columns>& values, Vector& scratch, Op, source here) {
    const context c = enter(scope, "column reduction", here);
    if (!c) return;
    touch_fragment(c, values, use::update, "column reduction", here);
    if (!c.checked()) return;
    touch_ordinary(*c.on, *c.by, scratch, true, 0, "column reduction", here);
    meet(*c.by);
    touch_ordinary(*c.on, *c.by, scratch, false, 0, "column reduction", here);
    meet(*c.by);
}

// Calls f(row, column, value, others...) for every element of equally shaped shared tiles.
template <class Scope, class F, class First, class... Others>
void visit_shared(const Scope& scope, use first_use, source here, F f, First& first, Others&... others) {
    const context c = enter(scope, "elementwise operation on shared memory", here);
    if (!c) return;
    const char* what = "elementwise operation on shared memory";
    if (c.checked()) {
        (touch_ordinary(*c.on, *c.by, others, false, partitioned_by_elements, what, here), ...);
        if (first_use != use::write) touch_ordinary(*c.on, *c.by, first, false, partitioned_by_elements, what, here);
        if (first_use != use::read) touch_ordinary(*c.on, *c.by, first, true, partitioned_by_elements, what, here);
    }
    for (int row = 0; row < First::rows; ++row) {
        for (int column = 0; column < First::columns; ++column) {
            f(row, column, *first.address(row, column), *others.address(row, column)...);
        }
    }
    spend_lanes(c, First::rows * First::columns, "elementwise");
}

// Rows from `first` on. The checker treats it as an access to the whole tile.
template <class Scope, class Shared>
void fill_rows(const Scope& scope, Shared& to, int first, typename Shared::element value, source here) {
    const context c = enter(scope, "filling rows of shared memory", here);
    if (!c) return;
    if (c.checked())
        touch_ordinary(*c.on, *c.by, to, true, partitioned_by_chunks, "filling rows of shared memory", here);
    for (int row = first > 0 ? first : 0; row < Shared::rows; ++row) {
        for (int column = 0; column < Shared::columns; ++column) *to.address(row, column) = value;
    }
    spend_lanes(c, (Shared::rows - first) * Shared::columns, "elementwise");
}

// Calls f(index, value) for every element of a shared vector.
template <class Scope, class F, class Vector>
void visit_vector(const Scope& scope, use how, source here, F f, Vector& vector) {
    const context c = enter(scope, "operation on a shared vector", here);
    if (!c) return;
    const char* what = "operation on a shared vector";
    if (c.checked()) {
        if (how != use::write) touch_ordinary(*c.on, *c.by, vector, false, partitioned_by_elements, what, here);
        if (how != use::read) touch_ordinary(*c.on, *c.by, vector, true, partitioned_by_elements, what, here);
    }
    for (int i = 0; i < Vector::length; ++i) f(i, *vector.address(i));
}

}  // namespace imbrex::hw
