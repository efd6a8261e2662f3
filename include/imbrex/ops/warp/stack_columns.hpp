// Stacks the columns of a tile of which only the first 4 or 8 of 16 rows are used, so that all lanes work on them:
//
//     4 rows x 4w columns                 16 rows x w columns
//     row 0     a0 a1 a2 a3               rows  0 to  3     a0 b0 c0 d0
//     row 1     b0 b1 b2 b3       ->      rows  4 to  7     a1 b1 c1 d1
//     row 2     c0 c1 c2 c3               rows  8 to 11     a2 b2 c2 d2
//     row 3     d0 d1 d2 d3               rows 12 to 15     a3 b3 c3 d3
//
// With 8 rows, the right half of the columns goes below the left half.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// The first original column of a row of the stacked tile, for `kept` rows of a tile with `columns` columns. `kept` is a
// power of two, so there is no division.
IMBREX_FN int first_stacked_column(int kept, int columns, int row) {
    return (row & -kept) * columns / 16;
}
IMBREX_FN int stacked_row(int kept, int row) {
    return row & (kept - 1);
}

// Stacks the first `Kept` rows, 4 or 8. With 16, nothing changes.
template <int Kept, class T, int Columns>
IMBREX_KERNEL hw::fragment<T, 16, Columns * Kept / 16, 1> stack_columns(const warp& scope,
                                                                        const hw::fragment<T, 16, Columns, 1>& tile,
                                                                        source here = source::current()) {
    static_assert((Kept == 4 || Kept == 8 || Kept == 16) && Columns % (128 / Kept) == 0,
                  "imbrex: stack_columns keeps 4, 8 or 16 rows, and the result has a multiple of 8 columns");
    return hw::stack_columns<Kept>(scope, tile, here);
}

// The value of each row of the stacked tile.
template <int Kept, class T>
IMBREX_KERNEL hw::row_fragment<T, 16, 1> stack_columns(const warp& scope, const hw::row_fragment<T, 16, 1>& values,
                                                       source here = source::current()) {
    static_assert(Kept == 4 || Kept == 8 || Kept == 16, "imbrex: stack_columns keeps 4, 8 or 16 rows");
    return hw::stack_columns<Kept>(scope, values, here);
}

}  // namespace imbrex
