// Values of rows that a warp holds in chunks (tile/chunk_tile.hpp), from and to anywhere in memory.
//
//     chunk_row_values<tile> sums;
//     load_values_from(self, sums, place, 0.0f);        // place(row): a pointer, or null where there is no row
//     transform(self, x, [](float a, float sum) { return a / sum; }, x, sums);
//     store_values_to(self, place, sums);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/chunk_rows.hpp>
#include <imbrex/tile/chunk_tile.hpp>

#include <utility>

namespace imbrex {

// One value for each row; `outside` where there is none.
template <int Rows, int Columns, class Place>
IMBREX_KERNEL void load_values_from(const warp& scope, hw::chunk_row_fragment<float, Rows, Columns>& to, Place&& place,
                                    float outside, source here = source::current()) {
    hw::visit_chunk_rows(
        scope, hw::use::write, here,
        [&](int row, float& value) {
            const float* const from = place(row);
            value = from != nullptr ? *from : outside;
        },
        to);
}
// To the places they were loaded from, or to others.
template <int Rows, int Columns, class Place>
IMBREX_KERNEL void store_values_to(const warp& scope, Place&& place,
                                   const hw::chunk_row_fragment<float, Rows, Columns>& values,
                                   source here = source::current()) {
    hw::store_chunk_row_values(scope, std::forward<Place>(place), values, here);
}

}  // namespace imbrex
