// Transposes of register tiles in the host world: see ops/warp/transpose.hpp.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>

namespace imbrex::hw {

template <class Scope, class T, int Rows, int Columns>
fragment<T, 16, Rows, 1> transpose(const Scope& scope, const fragment<T, Rows, Columns, 1>& tile, source here) {
    fragment<T, 16, Rows, 1> result;
    const context c = enter_registers(scope, "transpose of a tile", here);
    if (!c) return result;
    touch_fragment(c, tile, use::read, "transpose of a tile", here);
    touch_fragment(c, result, use::write, "transpose of a tile", here);
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < Rows; ++column) {
            result.at(row, column) = row < Columns ? tile.at(column, row) : T{};
        }
    }
    return result;
}

template <class Scope, class T, int Columns>
row_fragment<T, 16, 1> transpose(const Scope& scope, const column_fragment<T, Columns>& values, source here) {
    row_fragment<T, 16, 1> result;
    const context c = enter_registers(scope, "transpose of a vector", here);
    if (!c) return result;
    touch_fragment(c, values, use::read, "transpose of a vector", here);
    touch_fragment(c, result, use::write, "transpose of a vector", here);
    for (int row = 0; row < 16; ++row) result.values[row] = row < Columns ? values.values[row] : T{};
    return result;
}

template <int Columns, class Scope, class T>
column_fragment<T, Columns> transpose_rows(const Scope& scope, const row_fragment<T, 16, 1>& values, source here) {
    column_fragment<T, Columns> result;
    const context c = enter_registers(scope, "transpose of a vector", here);
    if (!c) return result;
    touch_fragment(c, values, use::read, "transpose of a vector", here);
    touch_fragment(c, result, use::write, "transpose of a vector", here);
    for (int column = 0; column < Columns; ++column) result.values[column] = values.values[column];
    return result;
}

}  // namespace imbrex::hw
