// A matrix in registers, spread over the lanes of a scope, and the vectors that go with it: one value for each row, one
// for each column. Its shape is the whole matrix that the scope holds together: a warpgroup's 64 x 128 tile is 64 x 128
// values in 128 threads. The scope is part of the type, so that a tile cannot be handed to another scope's operation.
#pragma once

#include <imbrex/core/register_layout.hpp>
#include <imbrex/hw/fragment.hpp>
#include <imbrex/hw/scope.hpp>

namespace imbrex {

template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major>
using register_tile = hw::fragment<T, Rows, Columns, Scope::warps, Layout>;

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using warp_tile = register_tile<T, Rows, Columns, warp, Layout>;

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using warpgroup_tile = register_tile<T, Rows, Columns, warpgroup, Layout>;

// One value for each row of a tile: a maximum, a sum, a scale.
template <class T, int Rows, class Scope>
using row_values = hw::row_fragment<T, Rows, Scope::warps>;

// One value for each column: a bias. Every warp of a scope holds all of them.
template <class T, int Columns>
using column_values = hw::column_fragment<T, Columns>;

template <class Tile, class T = typename Tile::element>
using row_values_of = hw::row_fragment<T, Tile::rows, Tile::warps>;

template <class Tile, class T = typename Tile::element>
using column_values_of = hw::column_fragment<T, Tile::columns>;

// Every operation on registers asks this of its arguments.
template <class Scope, class Tile>
constexpr IMBREX_FN void require_scope() {
    static_assert(Scope::warps == Tile::warps,
                  "imbrex: this register tile belongs to another scope than the one passed first");
}

}  // namespace imbrex
