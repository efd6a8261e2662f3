// 8-bit matrix products of a warpgroup whose A operand is made of an accumulator, as P in attention
// (ops/warp/accumulator_order.hpp has the operands and the products of one warp):
//
//     warpgroup_tile<float, 64, Keys> p;                       an accumulator
//     accumulator_order_tile<e4m3, 64, Keys> a;                the A operand
//     accumulator_order_shared_tile<e4m3, HeadDim, Keys> b;    the B operand, transposed: k along its rows
//     convert(group, a, p);
//     transpose(warp, b, 0, v, Keys);                          from v, Keys x HeadDim; or
//     reorder(warp, b, Keys);                                  in place, where b.tile has k in its natural order
//     mma_abt_async(group, out, a, b);                         out += p v
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/warp/accumulator_order.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class C, int M, int N, class A, class B, int K>
IMBREX_KERNEL void mma_abt_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator,
                                 const accumulator_order_tile<A, M, K>& a,
                                 const accumulator_order_shared_tile<B, N, K>& b, accumulation how = accumulation::add,
                                 source here = source::current()) {
    mma_abt_async(scope, accumulator, a.tile, b.tile, how, here);
}

// Only one of the two is in accumulator order.
template <class C, int M, int N, class A, int K, class B>
IMBREX_KERNEL void mma_abt_async(const warpgroup&, warpgroup_tile<C, M, N>&, const accumulator_order_tile<A, M, K>&,
                                 const B&, accumulation = accumulation::add, source = source::current()) {
    static_assert(sizeof(B) == 0,
                  "imbrex: an operand in accumulator order is multiplied only with another in that order: transpose or "
                  "reorder the B operand");
}
template <class C, int M, int N, class A, class B, int K>
IMBREX_KERNEL void mma_abt_async(const warpgroup&, warpgroup_tile<C, M, N>&, const A&,
                                 const accumulator_order_shared_tile<B, N, K>&, accumulation = accumulation::add,
                                 source = source::current()) {
    static_assert(
        sizeof(A) == 0,
        "imbrex: an operand in accumulator order is multiplied only with another in that order: convert the A "
        "operand to an accumulator_order_tile");
}

// Some columns of the product: those of rows First, First + 1, ... of b.
template <int First, class C, int M, int N, class A, class B, int Rows, int K>
IMBREX_KERNEL void mma_abt_columns_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator,
                                         const accumulator_order_tile<A, M, K>& a,
                                         const accumulator_order_shared_tile<B, Rows, K>& b,
                                         accumulation how = accumulation::add, source here = source::current()) {
    static_assert(First % 8 == 0 && First >= 0 && First + N <= Rows,
                  "imbrex: the columns of a product begin at a multiple of 8 and lie inside its B operand");
    mma_abt_async(scope, accumulator, a.tile, b.tile.template subtile<N, K>(First, 0), how, here);
}

}  // namespace imbrex
