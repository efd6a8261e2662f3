// A register tile: a matrix distributed over the registers of a scope's lanes, and vectors with one value per row or
// per column. Its shape is that of the whole matrix: a 64 x 128 tile of a warpgroup is 64 x 128 values in 128 threads.
// Each thread holds a fragment of it (hw/cuda/fragment.hpp). The scope is part of the type, so an operation of another
// scope rejects the tile at compile time.
#pragma once

#include <imbrex/core/register_layout.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/hw/scope.hpp>

namespace imbrex {

template <class T, int Rows, int Columns, class Scope, register_layout Layout = register_layout::row_major>
using register_tile = hw::fragment<T, Rows, Columns, Scope::warps, Layout>;

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using warp_tile = register_tile<T, Rows, Columns, warp, Layout>;

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using warpgroup_tile = register_tile<T, Rows, Columns, warpgroup, Layout>;

// One value per row of a tile: a maximum, a sum, a scale.
template <class T, int Rows, class Scope>
using row_values = hw::row_fragment<T, Rows, Scope::warps>;

// One value per column: a bias. Every warp of a scope holds all of them.
template <class T, int Columns>
using column_values = hw::column_fragment<T, Columns>;

template <class Tile, class T = typename Tile::element>
using row_values_of = hw::row_fragment<T, Tile::rows, Tile::warps>;

template <class Tile, class T = typename Tile::element>
using column_values_of = hw::column_fragment<T, Tile::columns>;

// Every operation on registers checks its arguments with this.
template <class Scope, class Tile>
constexpr IMBREX_FN void require_scope() {
    static_assert(Scope::warps == Tile::warps,
                  "imbrex: this register tile belongs to another scope than the one passed first");
}

}  // namespace imbrex
