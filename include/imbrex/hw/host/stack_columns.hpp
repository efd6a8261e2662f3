// stack_columns in the host world: see ops/warp/stack_columns.hpp.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>

namespace imbrex::hw {

template <int Kept, class Scope, class T, int Columns>
fragment<T, 16, Columns * Kept / 16, 1> stack_columns(const Scope& scope, const fragment<T, 16, Columns, 1>& tile,
                                                      source here) {
    fragment<T, 16, Columns * Kept / 16, 1> packed;
    const context c = enter_registers(scope, "stacking of columns", here);
    if (!c) return packed;
    touch_fragment(c, tile, use::read, "stacking of columns", here);
    touch_fragment(c, packed, use::write, "stacking of columns", here);
    for (int row = 0; row < 16; ++row) {
        const int first = row / Kept * (Columns * Kept / 16);
        for (int column = 0; column < Columns * Kept / 16; ++column) {
            packed.at(row, column) = tile.at(row % Kept, first + column);
        }
    }
    return packed;
}

template <int Kept, class Scope, class T>
row_fragment<T, 16, 1> stack_columns(const Scope& scope, const row_fragment<T, 16, 1>& values, source here) {
    row_fragment<T, 16, 1> packed;
    const context c = enter_registers(scope, "stacking of columns", here);
    if (!c) return packed;
    touch_fragment(c, values, use::read, "stacking of columns", here);
    touch_fragment(c, packed, use::write, "stacking of columns", here);
    for (int row = 0; row < 16; ++row) packed.values[row] = values.values[row % Kept];
    return packed;
}

}  // namespace imbrex::hw
