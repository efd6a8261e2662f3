// Column values of vectorised rows in the host world: an array; and pairs of elements that are changed together by the
// values of their column.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scope.hpp>
#include <imbrex/hw/host/vector_row.hpp>

#include <algorithm>

namespace imbrex::hw {

// `Run` neighbours share the values that f(column of the first, ...) writes.
template <int Run, class F, int Columns>
void write_vector_row_columns(const warp& scope, source here, F&& f, vector_row_column_fragment<float, Columns>& first,
                              vector_row_column_fragment<float, Columns>& second) {
    const context c = enter_registers(scope, "operation on column values", here);
    if (!c) return;
    touch_fragment(c, first, use::write, "operation on column values", here);
    touch_fragment(c, second, use::write, "operation on column values", here);
    for (int column = 0; column < Columns; column += Run) {
        float one, other;
        f(column, one, other);
        std::fill_n(first.values + column, Run, one);
        std::fill_n(second.values + column, Run, other);
    }
    spend_lanes(c, Columns, "elementwise");
}

// Changes both elements in float.
template <class F, class T>
void change_pair(F& f, T& one, T& other, float first, float second) {
    float x = convert<float>(one), y = convert<float>(other);
    f(x, y, first, second);
    one = convert<T>(x);
    other = convert<T>(y);
}

template <class F, class T, int Rows, int Columns>
void visit_vector_row_pairs(const warp& scope, source here, F&& f, vector_row_fragment<T, Rows, Columns>& x,
                            vector_row_fragment<T, Rows, Columns>& y,
                            const vector_row_column_fragment<float, Columns>& first,
                            const vector_row_column_fragment<float, Columns>& second) {
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    touch_fragment(c, first, use::read, "elementwise operation", here);
    touch_fragment(c, second, use::read, "elementwise operation", here);
    touch_fragment(c, x, use::update, "elementwise operation", here);
    touch_fragment(c, y, use::update, "elementwise operation", here);
    for (int row = 0; row < Rows; ++row) {
        T* const one = x.values + row * Columns;
        T* const other = y.values + row * Columns;
        for (int column = 0; column < Columns; ++column) {
            change_pair(f, one[column], other[column], first.values[column], second.values[column]);
        }
    }
    spend_lanes(c, 2 * Rows * Columns, "elementwise");
}

template <class F, class T, int Rows, int Columns>
void visit_vector_row_neighbours(const warp& scope, source here, F&& f, vector_row_fragment<T, Rows, Columns>& tile,
                                 const vector_row_column_fragment<float, Columns>& first,
                                 const vector_row_column_fragment<float, Columns>& second) {
    const context c = enter_registers(scope, "operation on neighbours", here);
    if (!c) return;
    touch_fragment(c, first, use::read, "operation on neighbours", here);
    touch_fragment(c, second, use::read, "operation on neighbours", here);
    touch_fragment(c, tile, use::update, "operation on neighbours", here);
    for (int row = 0; row < Rows; ++row) {
        T* const elements = tile.values + row * Columns;
        for (int column = 0; column < Columns; column += 2) {
            change_pair(f, elements[column], elements[column + 1], first.values[column], second.values[column]);
        }
    }
    spend_lanes(c, Rows * Columns, "elementwise");
}

}  // namespace imbrex::hw
