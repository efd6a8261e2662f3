// Reductions of a register tile to one value per row or per column, by an associative and commutative function: the
// device takes the elements in the order of its lanes, not from left to right.
//
// A row lies in four lanes of one warp. A reduction folds the elements of each lane, then combines the four lanes. The
// two halves are available separately, so a loop may fold many tiles and combine once at its end.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

// values = op(values, each element of the row), over the elements of each lane. Before the first fold the values must
// be the identity of op: each of the four lanes of a row starts with them.
template <class Scope, class T, int Rows, int Columns, int Warps, class Op>
IMBREX_KERNEL void fold_rows(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values,
                             const hw::fragment<T, Rows, Columns, Warps>& tile, Op op,
                             source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::fold_rows(scope, values, tile, op, here);
}

// Completes a fold: afterwards every lane has the value of its rows.
template <class Scope, class T, int Rows, int Warps, class Op>
IMBREX_KERNEL void finish_rows(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values, Op op,
                               source here = source::current()) {
    hw::combine_rows(scope, values, op, here);
}

// values = op over all elements of each row, starting with `identity`.
template <class Scope, class T, int Rows, int Columns, int Warps, class Op>
IMBREX_KERNEL void reduce_rows(const Scope& scope, hw::row_fragment<T, Rows, Warps>& values,
                               const hw::fragment<T, Rows, Columns, Warps>& tile, Op op, T identity,
                               source here = source::current()) {
    fill(scope, values, identity, here);
    fold_rows(scope, values, tile, op, here);
    finish_rows(scope, values, op, here);
}

// values = op over all elements of each column, at warp scope: one warp holds them all.
template <class T, int Rows, int Columns, class Op>
IMBREX_KERNEL void reduce_columns(const warp& scope, hw::column_fragment<T, Columns>& values,
                                  const hw::fragment<T, Rows, Columns, 1>& tile, Op op, T identity,
                                  source here = source::current()) {
    fill(scope, values, identity, here);
    hw::fold_columns(scope, values, tile, op, here);
    hw::combine_columns(scope, values, op, here);
}

// The same at warpgroup scope. The four warps exchange partial results through `scratch`, one shared vector for each.
template <class T, int Rows, int Columns, class Op>
IMBREX_KERNEL void reduce_columns(const warpgroup& scope, hw::column_fragment<T, Columns>& values,
                                  const hw::fragment<T, Rows, Columns, 4>& tile, Op op, T identity,
                                  shared_vector<T, 4 * Columns>& scratch, source here = source::current()) {
    fill(scope, values, identity, here);
    hw::fold_columns(scope, values, tile, op, here);
    hw::combine_columns(scope, values, op, here);
    hw::exchange_columns(scope, values, scratch, op, here);
}

}  // namespace imbrex
