// Matrix products of one warp with a B operand of 8-bit elements, e4m3 or int8, which is upconverted to 16 bits between
// shared memory and registers (core/upconversion.hpp: some values are scaled by a power of two, which others absorb).
//
// On the device each sixteen columns of such an operand are permuted (hw/cuda/upconvert.hpp). A tile with permuted
// columns has its own type, so it cannot be mixed up with an ordinary one:
//
//   mma_abt    both operands are permuted, the result is ordinary
//   mma_ab     the B operand and the accumulator are permuted
//
// `permute_for` and `unpermute` convert between the two. Row-wise operations may use the tile inside a permuted tile.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

template <class T, int Rows, int Columns, register_layout Layout = register_layout::row_major>
struct permuted_tile {
    warp_tile<T, Rows, Columns, Layout> tile;
};

// The tile type for an operand next to operands that are stored as T, or as 8-bit elements.
template <class T, class Stored, int Rows, int Columns, register_layout Layout = register_layout::row_major>
using operand_tile_for = std::conditional_t<sizeof(Stored) == 1, permuted_tile<T, Rows, Columns, Layout>,
                                            warp_tile<T, Rows, Columns, Layout>>;

// From a shared tile of 8-bit elements, or from one that a permuted tile was stored to.
template <mma_operand Operand, class T, int Rows, int Columns, register_layout Layout, class Shared>
IMBREX_KERNEL void load_operand(const warp& scope, permuted_tile<T, Rows, Columns, Layout>& to, const Shared& from,
                                source here = source::current()) {
    if constexpr (sizeof(typename Shared::element) == 1) {
        static_assert(Operand == mma_operand::b, "imbrex: 8-bit elements are upconverted as B operands only");
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

// A tile as the A operand of a product whose B operand is stored as Stored.
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

// The result with its columns in natural order.
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

// Row-wise operations use the inner tile.
template <class T, int Rows, int Columns, register_layout Layout>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Layout>& underlying_tile(permuted_tile<T, Rows, Columns, Layout>& tile) {
    return tile.tile;
}
template <class T, int Rows, int Columns, register_layout Layout>
IMBREX_KERNEL warp_tile<T, Rows, Columns, Layout>& underlying_tile(warp_tile<T, Rows, Columns, Layout>& tile) {
    return tile;
}

// Multiplies each sixteen columns by factor(number).
template <int Rows, int Columns, class Factor>
IMBREX_KERNEL void scale_16_columns(const warp& scope, warp_tile<float, Rows, Columns>& tile, const Factor& factor,
                                    source here = source::current()) {
    hw::scale_16_columns(scope, tile, factor, here);
}

}  // namespace imbrex
