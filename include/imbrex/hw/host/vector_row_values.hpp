// Row values of vectorised rows in the host world: an array.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scope.hpp>
#include <imbrex/hw/host/vector_row.hpp>

namespace imbrex::hw {

template <class F, class T, int Rows, int Columns, class... Others>
void visit_vector_row_values(const warp& scope, use first_use, source here, F&& f,
                             vector_row_values_fragment<T, Rows, Columns>& first, Others&... others) {
    const context c = enter_registers(scope, "operation on row values", here);
    if (!c) return;
    (touch_fragment(c, others, use_of<Others>, "operation on row values", here), ...);
    touch_fragment(c, first, first_use, "operation on row values", here);
    for (int row = 0; row < Rows; ++row) f(row, first.values[row], others.values[row]...);
}

template <class T, int Rows, int Columns, class RowPointer>
void store_vector_row_values(const warp& scope, RowPointer&& row_pointer,
                             const vector_row_values_fragment<T, Rows, Columns>& values, source here) {
    const context c = enter(scope, "store of row values", here);
    if (!c) return;
    touch_fragment(c, values, use::read, "store of row values", here);
    for (int row = 0; row < Rows; ++row) {
        T* const to = row_pointer(row);
        if (to != nullptr) touch_global_row(c, to, 1, global_use::write, row, "store of row values", here);
        if (to != nullptr) *to = values.values[row];
    }
}

}  // namespace imbrex::hw
