// Matrix products of one warp with a right operand of 8-bit elements, e4m3 or int8, which become 16-bit floats on their way from shared
// memory to registers (core/widening.hpp: some of them times a power of two, which others take up).
//
// On the device sixteen columns of such an operand come in an order of their own (hw/cuda/widen.hpp). A tile that has its columns in that
// order is another type, so that it cannot be taken for a tile as others are:
//
//   mma_abt    both operands are widened tiles, and what they give is a tile as others are
//   mma_ab     the right operand and the accumulator are widened ones
//
// `in_widened_order` and `in_order` make the one of the other. What goes by rows may be done with the tile inside a widened one.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/widen.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

template <class T, int Rows, int Columns, order Order = order::rows>
struct widened_tile {
    warp_tile<T, Rows, Columns, Order> tile;
};

// What stands beside operands that are stored as they are multiplied, or as 8-bit elements.
template <class T, class Stored, int Rows, int Columns, order Order = order::rows>
using tile_for =
    std::conditional_t<sizeof(Stored) == 1, widened_tile<T, Rows, Columns, Order>, warp_tile<T, Rows, Columns, Order>>;

// From a shared tile of 8-bit elements, or from one to which a widened tile was stored.
template <side Side, class T, int Rows, int Columns, order Order, class Shared>
IMBREX_KERNEL void load_operand(const warp& scope, widened_tile<T, Rows, Columns, Order>& to, const Shared& from,
                                source here = source::current()) {
    if constexpr (sizeof(typename Shared::element) == 1) {
        static_assert(Side == side::right, "imbrex: 8-bit elements are widened as right operands");
        hw::load_widened(scope, to.tile, from, here);
    } else {
        hw::load_operand<Side>(scope, to.tile, from, here);
    }
}
template <class Shared, class T, int Rows, int Columns, order Order>
IMBREX_KERNEL void store(const warp& scope, Shared&& to, const widened_tile<T, Rows, Columns, Order>& from,
                         source here = source::current()) {
    store(scope, to, from.tile, here);
}

template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_abt(const warp& scope, warp_tile<C, M, N>& accumulator, const widened_tile<A, M, K>& a,
                           const widened_tile<B, N, K>& b, source here = source::current()) {
    mma_abt(scope, accumulator, a.tile, b.tile, here);
}
template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_ab(const warp& scope, widened_tile<C, M, N>& accumulator, const warp_tile<A, M, K>& a,
                          const widened_tile<B, K, N, order::columns>& b, source here = source::current()) {
    mma_ab(scope, accumulator.tile, a, b.tile, here);
}

// A tile as a left operand beside such as are stored as Stored.
template <class Stored, class T, int Rows, int Columns>
IMBREX_KERNEL tile_for<T, Stored, Rows, Columns> in_order_for(const warp& scope,
                                                              const warp_tile<T, Rows, Columns>& from,
                                                              source here = source::current()) {
    if constexpr (sizeof(Stored) == 1) {
        widened_tile<T, Rows, Columns> result{from};
        hw::widen_order<Stored>(scope, result.tile, here);
        return result;
    } else {
        return from;
    }
}

// A result with its columns in their places.
template <int Rows, int Columns>
IMBREX_KERNEL warp_tile<float, Rows, Columns> in_order(const warp& scope,
                                                       const widened_tile<float, Rows, Columns>& from,
                                                       source here = source::current()) {
    warp_tile<float, Rows, Columns> result = from.tile;
    hw::restore_order(scope, result, here);
    return result;
}
template <int Rows, int Columns>
IMBREX_KERNEL const warp_tile<float, Rows, Columns>& in_order(const warp&,
                                                              const warp_tile<float, Rows, Columns>& from) {
    return from;
}

// What goes by rows is done with the tile inside.
template <class T, int Rows, int Columns, order Order>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Order>& any_order(widened_tile<T, Rows, Columns, Order>& tile) {
    return tile.tile;
}
template <class T, int Rows, int Columns, order Order>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Order>& any_order(warp_tile<T, Rows, Columns, Order>& tile) {
    return tile;
}

// Each sixteen columns times factor(number).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_sixteens(const warp& scope, warp_tile<float, Rows, Columns>& tile, const Factor& factor,
                                  source here = source::current()) {
    hw::scale_sixteens(scope, tile, factor, here);
}

}  // namespace imbrex
