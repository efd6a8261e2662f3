// Where only the first rows of a tile of 16 are of use, their columns can be
// put below one another, so that what is done with the tile is done with all of
// its lanes:
//
//     columns   0 .. 3w-1  of 4 rows                          0 .. w-1
//     row 0     a0 a1 a2 a3        16 rows of a quarter       rows 0 to 3 a0 b0
//     c0 d0 row 1     b0 b1 b2 b3        of the columns             rows 4 to 7
//     a1 b1 c1 d1 row 2     c0 c1 c2 c3    ->                             rows
//     8 to 11     a2 b2 c2 d2 row 3     d0 d1 d2 d3 rows 12 to 15    a3 b3 c3
//     d3
//
// Of 8 rows, the right half of the columns goes below the left one.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/stack_columns.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// The column with which a row of the packed tile begins, if so many rows of a tile with so many columns are kept, and which of the
// tile's rows it is. A power of two is kept: nothing is divided by it.
IMBREX_FN int first_stacked_column(int kept, int columns, int row) {
    return (row & -kept) * columns / 16;
}
IMBREX_FN int stacked_row(int kept, int row) {
    return row & (kept - 1);
}

// The first rows, 4 or 8 of them, packed. With 16 nothing is changed.
template <int Kept, class T, int Columns>
IMBREX_KERNEL hw::fragment<T, 16, Columns * Kept / 16, 1> stack_columns(const warp& scope,
                                                                        const hw::fragment<T, 16, Columns, 1>& tile,
                                                                        source here = source::current()) {
    static_assert((Kept == 4 || Kept == 8 || Kept == 16) && Columns % (128 / Kept) == 0,
                  "imbrex: 4, 8 or 16 rows are packed, into a multiple of 8 columns");
    return hw::stack_columns<Kept>(scope, tile, here);
}

// The value of each row of the packed tile.
template <int Kept, class T>
IMBREX_KERNEL hw::row_fragment<T, 16, 1> stack_columns(const warp& scope, const hw::row_fragment<T, 16, 1>& values,
                                                       source here = source::current()) {
    static_assert(Kept == 4 || Kept == 8 || Kept == 16, "imbrex: 4, 8 or 16 rows are packed");
    return hw::stack_columns<Kept>(scope, values, here);
}

}  // namespace imbrex
