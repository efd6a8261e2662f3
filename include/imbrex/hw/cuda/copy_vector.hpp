// Row and column values of a register tile from and to memory, and vectors in shared memory. Lanes that hold the same
// value load it together; one of them stores it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Memory of which `valid` elements exist.
template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void load_rows(const Scope& scope, row_fragment<T, Rows, Warps>& to, const T* from, int valid,
                             std::type_identity_t<T> fill, source here = source::current()) {
    visit_rows(
        scope, use::write, here, [&](int row, T& value) { value = row < valid ? from[row] : fill; }, to);
}

template <class Scope, class T, int Rows, int Warps>
IMBREX_KERNEL void store_rows(const Scope& scope, T* to, int valid, const row_fragment<T, Rows, Warps>& from,
                              source here = source::current()) {
    visit_rows(
        scope, use::read, here,
        [&](int row, const T& value) {
            if (lane_in_quad() == 0 && row < valid) to[row] = value;
        },
        from);
}

template <class Scope, class T, int Columns>
IMBREX_KERNEL void load_columns(const Scope& scope, column_fragment<T, Columns>& to, const T* from, int valid,
                                std::type_identity_t<T> fill, source here = source::current()) {
    visit_columns(
        scope, use::write, here, [&](int column, T& value) { value = column < valid ? from[column] : fill; }, to);
}

template <class Scope, class T, int Columns>
IMBREX_KERNEL void store_columns(const Scope& scope, T* to, int valid, const column_fragment<T, Columns>& from,
                                 source here = source::current()) {
    const bool chosen = scope.rank() == 0 && lane_row() == 0;
    visit_columns(
        scope, use::read, here,
        [&](int column, const T& value) {
            if (chosen && column < valid) to[column] = value;
        },
        from);
}

template <class Scope, class T, int Rows, int Warps, class Vector>
IMBREX_KERNEL void load_vector(const Scope& scope, row_fragment<T, Rows, Warps>& to, const Vector& from,
                               source here = source::current()) {
    static_assert(Vector::length == Rows, "imbrex: a shared vector must have a value for each row");
    __syncwarp();
    visit_rows(
        scope, use::write, here, [&](int row, T& value) { value = *from.at(row); }, to);
}

template <class Scope, class T, int Columns, class Vector>
IMBREX_KERNEL void load_vector(const Scope& scope, column_fragment<T, Columns>& to, const Vector& from,
                               source here = source::current()) {
    static_assert(Vector::length == Columns, "imbrex: a shared vector must have a value for each column");
    __syncwarp();
    visit_columns(
        scope, use::write, here, [&](int column, T& value) { value = *from.at(column); }, to);
}

template <class Scope, class T, int Rows, int Warps, class Vector>
IMBREX_KERNEL void store_vector(const Scope& scope, Vector& to, const row_fragment<T, Rows, Warps>& from,
                                source here = source::current()) {
    static_assert(Vector::length == Rows, "imbrex: a shared vector must have a value for each row");
    __syncwarp();
    store_rows(scope, to.at(0), Rows, from, here);
}

template <class Scope, class T, int Columns, class Vector>
IMBREX_KERNEL void store_vector(const Scope& scope, Vector& to, const column_fragment<T, Columns>& from,
                                source here = source::current()) {
    static_assert(Vector::length == Columns, "imbrex: a shared vector must have a value for each column");
    __syncwarp();
    store_columns(scope, to.at(0), Columns, from, here);
}

// Combines the column values of the four warps of a warpgroup through shared memory, a quarter of `scratch` for each.
// All warps combine in the same order, so their results are equal bit for bit.
template <class T, int Columns, class Vector, class Op>
IMBREX_KERNEL void exchange_columns(const warpgroup& scope, column_fragment<T, Columns>& values, Vector& scratch, Op op,
                                    source here = source::current()) {
    static_assert(Vector::length == 4 * Columns, "imbrex: the scratch must have a value for each column and warp");
    __syncwarp();
    visit_columns(
        scope, use::read, here,
        [&](int column, const T& value) {
            if (lane_row() == 0) *scratch.at(scope.rank() * Columns + column) = value;
        },
        values);
    scope.sync(here);
    visit_columns(
        scope, use::write, here,
        [&](int column, T& value) {
            value = *scratch.at(column);
#pragma unroll
            for (int other = 1; other < 4; ++other) value = op(value, *scratch.at(other * Columns + column));
        },
        values);
    scope.sync(here);
}

// Calls f(index, value) for every element of a shared vector, distributed over the threads of the scope.
template <class Scope, class F, class Vector>
IMBREX_KERNEL void visit_vector(const Scope& scope, use, source, F&& f, Vector& vector) {
    __syncwarp();
    for (int index = thread_in(scope); index < Vector::length; index += Scope::threads) f(index, *vector.at(index));
}

}  // namespace imbrex::hw
