// Accumulator order: the order of the inner dimension k in which an accumulator of wgmma becomes an 8-bit A operand
// without exchanging registers between threads. Of each 16 columns, lane t of a quad holds columns 2t, 2t + 1, 2t + 8
// and 2t + 9 of an accumulator, but k = 4t to 4t + 3 of an 8-bit operand. So position 4t + i of the operand gets the
// i-th of these columns, and the B operand has its k in the same order.
//
//     position    0  1  2  3    4  5  6  7    8  9 10 11   12 13 14 15
//     column      0  1  8  9    2  3 10 11    4  5 12 13    6  7 14 15
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex {

constexpr IMBREX_FN int accumulator_order_column(int position) {
    const int within = position % 16;
    return position - within + within / 4 * 2 + within % 4 / 2 * 8 + within % 2;
}

constexpr IMBREX_FN int accumulator_order_position(int column) {
    const int within = column % 16;
    return column - within + within % 8 / 2 * 4 + within / 8 * 2 + within % 2;
}

}  // namespace imbrex
