// Left operands of a warp's matrix products that are held in registers as they are stored, and become what is multiplied sixteen
// columns, or rows, at a time: those of 8 bits, e4m3 or int8, as fp16, where all of their values are exact. Held so they take half
// the registers, and the shared memory that they come from can be given back before they are multiplied. Those of 16 bits are held
// as they are multiplied.
//
//   stored_rows      Rows x Columns by rows: sixteen columns at a time are the left operand of mma_abt
//   stored_across    Rows x Columns by columns: sixteen rows at a time are that of mma_atbt
//
// On the device sixteen columns of 8-bit elements come in orders of their own (hw/cuda/narrow.hpp). What they are multiplied with
// over their columns is put in the same order, by `in_order_beside`; and where columns are the rows of a result, `turned_in_order`
// gives them back their places.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/narrow.hpp>
#include <imbrex/hw/widen.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/turn.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// What elements that are stored as these are multiplied as.
template <class Stored>
using multiplied_as = std::conditional_t<sizeof(Stored) == 1, fp16, Stored>;

template <class Stored, int Rows, int Columns, order Order>
class stored_operand {
    static constexpr bool narrow = sizeof(Stored) == 1, by_rows = Order == order::rows;
    static constexpr int parts = (by_rows ? Columns : Rows) / 16;
    static constexpr int part_rows = by_rows ? Rows : 16, part_columns = by_rows ? 16 : Columns;

  public:
    using operand = warp_tile<multiplied_as<Stored>, part_rows, part_columns, Order>;

    template <class Shared>
    IMBREX_KERNEL void load(const warp& scope, const Shared& from, source here = source::current()) {
        if constexpr (narrow) {
            hw::load_narrow(scope, held_, from, here);
        } else {
            [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
                (hw::load_operand<side::left>(scope, held_.of[Numbers],
                                              from.template part<part_rows, part_columns>(by_rows ? 0 : 16 * Numbers,
                                                                                          by_rows ? 16 * Numbers : 0),
                                              here),
                 ...);
            }
            (std::make_integer_sequence<int, parts>{});
        }
    }
    // Columns, or rows, 16 * number and on. The number is known when it is compiled.
    IMBREX_KERNEL operand part(const warp& scope, int number, source here = source::current()) const {
        if constexpr (narrow) {
            operand made;
            if constexpr (by_rows) {
                hw::widen_columns(scope, made, held_, number, here);
            } else {
                hw::widen_rows(scope, made, held_, number, here);
            }
            return made;
        } else {
            return held_.of[number];
        }
    }

  private:
    struct as_multiplied {
        operand of[parts];
    };
    std::conditional_t<narrow, hw::narrow_fragment<Stored, Rows, Columns, Order>, as_multiplied> held_;
};
template <class Stored, int Rows, int Columns>
using stored_rows = stored_operand<Stored, Rows, Columns, order::rows>;
template <class Stored, int Rows, int Columns>
using stored_across = stored_operand<Stored, Rows, Columns, order::columns>;

// Sixteen columns of what is multiplied with stored_rows of Stored, as it is to be in shared memory.
template <class Stored, class T, int Rows>
IMBREX_KERNEL warp_tile<T, Rows, 16> in_order_beside(const warp& scope, const warp_tile<T, Rows, 16>& from,
                                                     source here = source::current()) {
    warp_tile<T, Rows, 16> result = from;
    if constexpr (sizeof(Stored) == 1) hw::pair_order(scope, result, here);
    return result;
}

// A product with stored_across of Stored on its left, turned round, all in its place.
template <class Stored, int Rows, int Columns>
IMBREX_KERNEL warp_tile<float, 16, Rows> turned_in_order(const warp& scope, const warp_tile<float, Rows, Columns>& from,
                                                         source here = source::current()) {
    warp_tile<float, 16, Rows> result = turned(scope, from, here);
    if constexpr (sizeof(Stored) == 1) hw::restore_order(scope, result, here);
    return result;
}

// Each sixteen rows times factor(number).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_sixteen_rows(const warp& scope, warp_tile<float, Rows, Columns>& tile, const Factor& factor,
                                      source here = source::current()) {
    hw::scale_sixteen_rows(scope, tile, factor, here);
}

}  // namespace imbrex
