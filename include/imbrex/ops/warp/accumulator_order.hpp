// 8-bit operands in accumulator order, and matrix products of one warp with them. The A operand is made of an
// accumulator, as P in attention: the conversion needs no exchange between threads if the inner dimension k stays in the
// order of the accumulator's registers (core/accumulator_order.hpp). Operands in that order have types of their own, so
// that they multiply only with each other. ops/warpgroup/accumulator_order.hpp has the products of a warpgroup.
//
//     warp_tile<float, 16, Keys> p;                            an accumulator
//     accumulator_order_tile<e4m3, 16, Keys, warp> a;          the A operand
//     convert(self, a, p);
//     mma_ab_columns<0>(self, out, a, v);                      out += p v with v, Keys x HeadDim, as it is: reordered on
//                                                              its way to registers, and out has permuted columns; or
//     reorder_rows<HeadDim>(self, b, 0, Keys);                 with b, the transpose of v, reordered in place
//     mma_abt_columns<0>(self, out, a, b);
#pragma once

#include <imbrex/core/accumulator_order.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/permuted_tile.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class T, int Rows, int Columns, class Scope = warpgroup>
struct accumulator_order_tile {
    static_assert(sizeof(T) == 1 && Columns % 32 == 0,
                  "imbrex: an operand in accumulator order has 8-bit elements and a multiple of 32 columns");
    register_tile<T, Rows, Columns, Scope> tile;
};

template <class T, int Rows, int Columns>
struct accumulator_order_shared_tile {
    static_assert(sizeof(T) == 1 && Columns % 32 == 0,
                  "imbrex: an operand in accumulator order has 8-bit elements and a multiple of 32 columns");
    static constexpr int bytes = shared_tile<T, Rows, Columns>::bytes;
    shared_tile<T, Rows, Columns> tile;
};

template <class Scope, class T, int Rows, int Columns>
IMBREX_KERNEL void convert(const Scope& scope, accumulator_order_tile<T, Rows, Columns, Scope>& to,
                           const register_tile<float, Rows, Columns, Scope>& from, source here = source::current()) {
    hw::convert_to_accumulator_order(scope, to.tile, from, here);
}

// Rows of `from` become columns of `to`, from `first_column` on. Rows from `valid_rows` on become zero.
template <class T, int Rows, int Columns, int FromRows>
IMBREX_KERNEL void transpose(const warp& scope, accumulator_order_shared_tile<T, Rows, Columns>& to, int first_column,
                             const shared_tile<T, FromRows, Rows>& from, int valid_rows,
                             source here = source::current()) {
    static_assert(FromRows % 16 == 0 && FromRows <= Columns && Rows % 32 == 0,
                  "imbrex: 16 rows by 32 columns are transposed to accumulator order at a time");
    hw::transpose_to_accumulator_order(scope, to.tile.template subtile<Rows, FromRows>(0, first_column),
                                       from.template subtile<FromRows, Rows>(0, 0), valid_rows, here);
}

// In place, from the natural order. Columns from `valid_columns` on become zero.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void reorder(const warp& scope, accumulator_order_shared_tile<T, Rows, Columns>& tile, int valid_columns,
                           source here = source::current()) {
    hw::reorder_to_accumulator_order(scope, tile.tile, valid_columns, here);
}

// The same for some of its rows, from `first_row` on: each warp of a block reorders a part.
template <int Count, class T, int Rows, int Columns>
IMBREX_KERNEL void reorder_rows(const warp& scope, accumulator_order_shared_tile<T, Rows, Columns>& tile, int first_row,
                                int valid_columns, source here = source::current()) {
    auto part = tile.tile.template subtile<Count>(first_row);
    hw::reorder_to_accumulator_order(scope, part, valid_columns, here);
}

// Columns First, First + 1, ... of a product: those of v, or the rows of b. The accumulator has as many.
template <int First, class C, int M, int N, class A, int K, class T, int Columns>
IMBREX_KERNEL void mma_ab_columns(const warp& scope, permuted_tile<C, M, N>& accumulator,
                                  const accumulator_order_tile<A, M, K, warp>& a, const shared_tile<T, K, Columns>& v,
                                  source here = source::current()) {
    static_assert(First % 32 == 0 && N % 32 == 0 && First >= 0 && First + N <= Columns,
                  "imbrex: the columns of a product are 32, 64, ... inside its B operand");
    static_for<K / 32>([&](auto step) {
        constexpr int k = 32 * step;
        warp_tile<T, N, 32> operand;
        hw::load_in_accumulator_order(scope, operand, v.template subtile<32, N>(k, First), here);
        mma_abt(scope, accumulator.tile, imbrex::columns_of<k, 32>(scope, a.tile, here), operand, here);
    });
}
template <int First, class C, int M, int N, class A, int K, class T, int Rows>
IMBREX_KERNEL void mma_abt_columns(const warp& scope, warp_tile<C, M, N>& accumulator,
                                   const accumulator_order_tile<A, M, K, warp>& a,
                                   const accumulator_order_shared_tile<T, Rows, K>& b,
                                   source here = source::current()) {
    static_assert(First % 16 == 0 && First >= 0 && First + N <= Rows,
                  "imbrex: the columns of a product begin at a multiple of 16 and lie inside its B operand");
    static_for<K / 32>([&](auto step) {
        constexpr int k = 32 * step;
        warp_tile<T, N, 32> operand;
        load_operand<mma_operand::b>(scope, operand, b.tile.template subtile<N, 32>(First, k), here);
        mma_abt(scope, accumulator, imbrex::columns_of<k, 32>(scope, a.tile, here), operand, here);
    });
}

}  // namespace imbrex
