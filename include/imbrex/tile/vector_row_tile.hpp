// Vectorised rows: rows in the registers of a warp, eight neighbouring elements per lane, for 16-byte global loads and
// stores. This layout is for elementwise operations and row reductions, which are bound by memory bandwidth; matrix
// instructions need a register tile instead. Rows have 8, 16, 32, 64, 128 columns or a multiple of 256, and a tile has
// a multiple of 256 elements.
#pragma once

#include <imbrex/hw/vector_rows.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
using vector_row_tile = hw::vector_row_fragment<T, Rows, Columns>;

// One value per row of such a tile, or per column.
template <class Tile, class T = float>
using vector_row_values = hw::vector_row_values_fragment<T, Tile::rows, Tile::columns>;

template <class T, int Columns>
using vector_row_column_values = hw::vector_row_column_fragment<T, Columns>;

}  // namespace imbrex
