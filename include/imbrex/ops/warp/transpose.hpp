// Transposes a register tile of a warp, so that a product that comes out by columns (swap-AB) can be an operand of the
// next product or be stored by rows.
//
//     Rows x 8 or Rows x 16     ->     16 x Rows; rows without a source column are zero
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <class T, int Rows, int Columns>
IMBREX_KERNEL warp_tile<T, 16, Rows> transpose(const warp& scope, const warp_tile<T, Rows, Columns>& tile,
                                               source here = source::current()) {
    static_assert((sizeof(T) == 2 || sizeof(T) == 4) && (Columns == 8 || Columns == 16),
                  "imbrex: transpose takes a tile of 8 or 16 columns of 16-bit or 32-bit elements");
    return hw::transpose(scope, tile, here);
}

// Column values as row values; and the inverse, for the first rows.
template <class T, int Columns>
IMBREX_KERNEL row_values<T, 16, warp> transpose(const warp& scope, const column_values<T, Columns>& values,
                                                source here = source::current()) {
    static_assert(sizeof(T) == 4 && (Columns == 8 || Columns == 16),
                  "imbrex: transpose takes 8 or 16 column values of 32 bits");
    return hw::transpose(scope, values, here);
}
template <int Columns, class T>
IMBREX_KERNEL column_values<T, Columns> transpose_rows(const warp& scope, const row_values<T, 16, warp>& values,
                                                       source here = source::current()) {
    static_assert(sizeof(T) == 4 && (Columns == 8 || Columns == 16),
                  "imbrex: transpose takes 8 or 16 row values of 32 bits");
    return hw::transpose_rows<Columns>(scope, values, here);
}

}  // namespace imbrex
