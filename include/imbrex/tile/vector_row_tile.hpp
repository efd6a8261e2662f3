// Rows that a warp holds in chunks of eight neighbours, as they are moved quickest between global memory and registers: for what
// goes by elements and by rows, where memory is all that should take time. A matrix instruction wants a register tile instead.
// Rows have 8, 16, 32, 64, 128 columns or a multiple of 256, and all of them together a multiple of 256 elements.
#pragma once

#include <imbrex/hw/vector_row.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
using vector_row_tile = hw::vector_row_fragment<T, Rows, Columns>;

// One value for each row of such a tile, or for each column.
template <class Tile, class T = float>
using vector_row_values = hw::vector_row_values_fragment<T, Tile::rows, Tile::columns>;

template <class T, int Columns>
using vector_row_column_values = hw::vector_row_column_fragment<T, Columns>;

}  // namespace imbrex
