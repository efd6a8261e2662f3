// Values of rows that a warp holds in chunks, in the host world: one for each.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/chunks.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scope.hpp>

namespace imbrex::hw {

template <class F, class T, int Rows, int Columns, class... Others>
void visit_chunk_rows(const warp& scope, use first_use, source here, F&& f, chunk_row_fragment<T, Rows, Columns>& first,
                      Others&... others) {
    const context c = enter_registers(scope, "operation on row values", here);
    if (!c) return;
    (touch_fragment(c, others, use_of<Others>, "operation on row values", here), ...);
    touch_fragment(c, first, first_use, "operation on row values", here);
    for (int row = 0; row < Rows; ++row) f(row, first.values[row], others.values[row]...);
}

template <class T, int Rows, int Columns, class Place>
void store_chunk_row_values(const warp& scope, Place&& place, const chunk_row_fragment<T, Rows, Columns>& values,
                            source here) {
    const context c = enter(scope, "store of row values", here);
    if (!c) return;
    touch_fragment(c, values, use::read, "store of row values", here);
    for (int row = 0; row < Rows; ++row) {
        T* const to = place(row);
        if (to != nullptr) *to = values.values[row];
    }
}

}  // namespace imbrex::hw
