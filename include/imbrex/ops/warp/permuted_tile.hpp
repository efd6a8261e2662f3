// Matrix products of one warp with a right operand of 8-bit elements, e4m3 or int8, which become 16-bit floats on their way from shared
// memory to registers (core/upconversion.hpp: some of them times a power of two, which others take up).
//
// On the device sixteen columns of such an operand come in an order of their own (hw/cuda/upconvert.hpp). A tile that has its columns in that
// order is another type, so that it cannot be taken for a tile as others are:
//
//   mma_abt    both operands are upconverted tiles, and what they give is a tile as others are
//   mma_ab     the right operand and the accumulator are upconverted ones
//
// `permute_for` and `unpermute` make the one of the other. What goes by rows may be done with the tile inside a widened one.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/upconvert.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
struct permuted_tile {
    warp_tile<T, Rows, Columns, Layout> tile;
};

// What stands beside operands that are stored as they are multiplied, or as 8-bit elements.
template <class T, class Stored, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using operand_tile_for = std::conditional_t<sizeof(Stored) == 1, permuted_tile<T, Rows, Columns, Layout>,
                                            warp_tile<T, Rows, Columns, Layout>>;

// From a shared tile of 8-bit elements, or from one to which a widened tile was stored.
template <mma_operand Operand, class T, int Rows, int Columns, register_layout Layout, class Shared>
IMBREX_KERNEL void load_operand(const warp& scope, permuted_tile<T, Rows, Columns, Layout>& to, const Shared& from,
                                source here = source::current()) {
    if constexpr (sizeof(typename Shared::element) == 1) {
        static_assert(Operand == mma_operand::b, "imbrex: 8-bit elements are upconverted as right operands");
        hw::load_upconverted(scope, to.tile, from, here);
    } else {
        hw::load_operand<Operand>(scope, to.tile, from, here);
    }
}
template <class Shared, class T, int Rows, int Columns, register_layout Layout>
IMBREX_KERNEL void store(const warp& scope, Shared&& to, const permuted_tile<T, Rows, Columns, Layout>& from,
                         source here = source::current()) {
    store(scope, to, from.tile, here);
}

template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_abt(const warp& scope, warp_tile<C, M, N>& accumulator, const permuted_tile<A, M, K>& a,
                           const permuted_tile<B, N, K>& b, source here = source::current()) {
    mma_abt(scope, accumulator, a.tile, b.tile, here);
}
template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_ab(const warp& scope, permuted_tile<C, M, N>& accumulator, const warp_tile<A, M, K>& a,
                          const permuted_tile<B, K, N, register_layout::column_major>& b,
                          source here = source::current()) {
    mma_ab(scope, accumulator.tile, a, b.tile, here);
}

// A tile as a left operand beside such as are stored as Stored.
template <class Stored, class T, int Rows, int Columns>
IMBREX_KERNEL operand_tile_for<T, Stored, Rows, Columns> permute_for(const warp& scope,
                                                                     const warp_tile<T, Rows, Columns>& from,
                                                                     source here = source::current()) {
    if constexpr (sizeof(Stored) == 1) {
        permuted_tile<T, Rows, Columns> result{from};
        hw::permute_columns<Stored>(scope, result.tile, here);
        return result;
    } else {
        return from;
    }
}

// A result with its columns in their places.
template <int Rows, int Columns>
IMBREX_KERNEL warp_tile<float, Rows, Columns> unpermute(const warp& scope,
                                                        const permuted_tile<float, Rows, Columns>& from,
                                                        source here = source::current()) {
    warp_tile<float, Rows, Columns> result = from.tile;
    hw::unpermute_columns(scope, result, here);
    return result;
}
template <int Rows, int Columns>
IMBREX_KERNEL const warp_tile<float, Rows, Columns>& unpermute(const warp&,
                                                               const warp_tile<float, Rows, Columns>& from) {
    return from;
}

// What goes by rows is done with the tile inside.
template <class T, int Rows, int Columns, register_layout Layout>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Layout>& underlying_tile(permuted_tile<T, Rows, Columns, Layout>& tile) {
    return tile.tile;
}
template <class T, int Rows, int Columns, register_layout Layout>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Layout>& underlying_tile(warp_tile<T, Rows, Columns, Layout>& tile) {
    return tile;
}

// Each sixteen columns times factor(number).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_16_columns(const warp& scope, warp_tile<float, Rows, Columns>& tile, const Factor& factor,
                                    source here = source::current()) {
    hw::scale_16_columns(scope, tile, factor, here);
}

}  // namespace imbrex
