// 8-bit operands in accumulator order in the host world (see ops/warp/accumulator_order.hpp).
#pragma once

#include <imbrex/core/accumulator_order.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/fragment.hpp>

#include <algorithm>

namespace imbrex::hw {

template <class Scope, class To, int Rows, int Columns, int Warps>
void convert_to_accumulator_order(const Scope& scope, fragment<To, Rows, Columns, Warps>& to,
                                  const fragment<float, Rows, Columns, Warps>& from, source here) {
    const context c = enter_registers(scope, "conversion", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "conversion", here);
    touch_fragment(c, to, use::write, "conversion", here);
    for (int row = 0; row < Rows; ++row) {
        for (int position = 0; position < Columns; ++position) {
            to.at(row, position) = convert<To>(from.at(row, accumulator_order_column(position)));
        }
    }
    spend_lanes(c, Rows * Columns, "conversion");
}

// Only k is in accumulator order here, not the columns.
template <class T, int Columns, int Rows, class Shared>
void load_in_accumulator_order(const warp& scope, fragment<T, Columns, Rows, 1>& to, const Shared& from, source here) {
    static_assert(std::is_same_v<T, std::remove_const_t<typename Shared::element>> && sizeof(T) == 1 &&
                      Shared::rows == Rows && Shared::columns == Columns && Columns % 32 == 0,
                  "imbrex: an operand in accumulator order is loaded from a shared tile of the same 8-bit type, with a "
                  "multiple of 32 columns");
    const char* what = "load in accumulator order";
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, from, false, partitioned_by_fragment, what, here);
    touch_fragment(c, to, use::write, what, here);
    for (int column = 0; column < Columns; ++column) {
        for (int position = 0; position < Rows; ++position) {
            to.at(column, position) = *from.address(accumulator_order_column(position), column);
        }
    }
    spend_lanes(c, Rows * Columns / 4, "load");
}

template <class To, class From>
void transpose_to_accumulator_order(const warp& scope, const To& to, const From& from, int valid_rows, source here) {
    using element = std::remove_const_t<typename To::element>;
    const char* what = "transposition to accumulator order";
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, from, false, 0, what, here);
        touch_ordinary(*c.on, *c.by, to, true, 0, what, here);
    }
    for (int row = 0; row < From::rows; ++row) {
        for (int column = 0; column < From::columns; ++column) {
            *to.address(column, accumulator_order_position(row)) =
                row < valid_rows ? *from.address(row, column) : element{};
        }
    }
    spend_lanes(c, From::rows * From::columns, "transposition");
}

template <class Shared>
void reorder_to_accumulator_order(const warp& scope, Shared& tile, int valid_columns, source here) {
    using element = typename Shared::element;
    const char* what = "reordering to accumulator order";
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, tile, false, 0, what, here);
        touch_ordinary(*c.on, *c.by, tile, true, 0, what, here);
    }
    for (int row = 0; row < Shared::rows; ++row) {
        for (int first = 0; first < Shared::columns; first += 16) {
            element before[16];
            std::copy_n(tile.address(row, first), 16, before);
            for (int i = 0; i < 16; ++i) {
                const int column = accumulator_order_column(i);
                *tile.address(row, first + i) = first + column < valid_columns ? before[column] : element{};
            }
        }
    }
    spend_lanes(c, Shared::rows * Shared::columns, "reordering");
}

}  // namespace imbrex::hw
