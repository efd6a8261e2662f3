// Rows that a warp holds in chunks of eight neighbours, as they are moved quickest between global memory and registers: for what
// goes by elements and by rows, where memory is all that should take time. A matrix instruction wants a register tile instead.
// Rows have 8, 16, 32, 64, 128 columns or a multiple of 256, and all of them together a multiple of 256 elements.
#pragma once

#include <imbrex/hw/chunks.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
using chunk_tile = hw::chunk_fragment<T, Rows, Columns>;

// One value for each row of such a tile, or for each column.
template <class Tile, class T = float>
using chunk_row_values = hw::chunk_row_fragment<T, Tile::rows, Tile::columns>;

template <class T, int Columns>
using chunk_column_values = hw::chunk_column_fragment<T, Columns>;

}  // namespace imbrex
