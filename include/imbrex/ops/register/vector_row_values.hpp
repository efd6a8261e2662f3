// Row values of vectorised rows (tile/vector_row_tile.hpp), loaded from and stored to arbitrary addresses.
//
//     vector_row_values<tile> sums;
//     load_values_from(self, sums, row_pointer, 0.0f);  // row_pointer(row): an address, or null if there is no row
//     transform(self, x, [](float a, float sum) { return a / sum; }, x, sums);
//     store_values_to(self, row_pointer, sums);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <utility>

namespace imbrex {

// One value per row; `fill_value` if the pointer is null.
template <int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void load_values_from(const warp& scope, hw::vector_row_values_fragment<float, Rows, Columns>& to,
                                    RowPointer&& row_pointer, float fill_value, source here = source::current()) {
    hw::visit_vector_row_values(
        scope, hw::use::write, here,
        [&](int row, float& value) {
            const float* const from = row_pointer(row);
            value = from != nullptr ? *from : fill_value;
        },
        to);
}
// To the addresses that they were loaded from, or to others.
template <int Rows, int Columns, class RowPointer>
IMBREX_KERNEL void store_values_to(const warp& scope, RowPointer&& row_pointer,
                                   const hw::vector_row_values_fragment<float, Rows, Columns>& values,
                                   source here = source::current()) {
    hw::store_vector_row_values(scope, std::forward<RowPointer>(row_pointer), values, here);
}

}  // namespace imbrex
