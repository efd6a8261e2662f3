// Matrix products of one warp (mma.sync) with accumulator and operands in registers. The letters name the product: `ab`
// is A B, `abt` is A times B transposed, then `atb` and `atbt`. The instruction takes A row-major and B column-major,
// so the letters determine the layout of the register tiles: an operand that the instruction reads as it is has the
// row-major layout, a transposed one the column-major layout (its load transposes, by ldmatrix.trans).
//
//              A                       B
//   mma_ab     M x K row-major         K x N column-major
//   mma_abt    M x K row-major         N x K row-major
//   mma_atb    K x M column-major      K x N column-major
//   mma_atbt   K x M column-major      N x K row-major
//
// With operands in shared memory the same functions load one step of K at a time. `load_operand` is `load` into the
// register order of an A or a B operand, which saves moves. A B operand of eight rows is loaded into a tile of sixteen,
// half of it empty, for an accumulator of eight columns.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/products.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <mma_operand Operand, class T, int Rows, int Columns, register_layout Layout, class Shared>
IMBREX_KERNEL void load_operand(const warp& scope, warp_tile<T, Rows, Columns, Layout>& to, const Shared& from,
                                source here = source::current()) {
    hw::load_operand<Operand>(scope, to, from, here);
}

template <class T, int Columns, class Shared>
requires(Shared::rows == 8) IMBREX_KERNEL void load_eight_rows(const warp& scope, warp_tile<T, 16, Columns>& to,
                                                               const Shared& from, source here = source::current()) {
    hw::load_eight_rows(scope, to, from, here);
}

template <class C, class A, class B, int M, int N, int K, int Rows>
IMBREX_KERNEL void mma_abt(const warp& scope, warp_tile<C, M, N>& accumulator, const warp_tile<A, M, K>& a,
                           const warp_tile<B, Rows, K>& b, source here = source::current()) {
    static_assert(Rows == N || (Rows == 16 && N == 8),
                  "imbrex: the shapes of the operands do not multiply to the accumulator's");
    hw::mma_sync(scope, accumulator, a, b, here);
}
template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_ab(const warp& scope, warp_tile<C, M, N>& accumulator, const warp_tile<A, M, K>& a,
                          const warp_tile<B, K, N, register_layout::column_major>& b, source here = source::current()) {
    hw::mma_sync(scope, accumulator, a, hw::transposed(b), here);
}
template <class C, class A, class B, int M, int N, int K>
IMBREX_KERNEL void mma_atb(const warp& scope, warp_tile<C, M, N>& accumulator,
                           const warp_tile<A, K, M, register_layout::column_major>& a,
                           const warp_tile<B, K, N, register_layout::column_major>& b,
                           source here = source::current()) {
    hw::mma_sync(scope, accumulator, hw::transposed(a), hw::transposed(b), here);
}
template <class C, class A, class B, int M, int N, int K, int Rows>
IMBREX_KERNEL void mma_atbt(const warp& scope, warp_tile<C, M, N>& accumulator,
                            const warp_tile<A, K, M, register_layout::column_major>& a, const warp_tile<B, Rows, K>& b,
                            source here = source::current()) {
    static_assert(Rows == N || (Rows == 16 && N == 8),
                  "imbrex: the shapes of the operands do not multiply to the accumulator's");
    hw::mma_sync(scope, accumulator, hw::transposed(a), b, here);
}

namespace detail {

// Loads the operands from shared memory, one instruction's step of K at a time, and multiplies.
template <bool TransposeA, bool TransposeB, class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_from_shared(const warp& scope, warp_tile<C, M, N>& accumulator, const A& a, const B& b,
                                   source here) {
    using a_element = std::remove_const_t<typename A::element>;
    using b_element = std::remove_const_t<typename B::element>;
    constexpr int depth = TransposeA ? A::rows : A::columns;
    static_assert((TransposeA ? A::columns : A::rows) == M && (TransposeB ? B::rows : B::columns) == N &&
                      (TransposeB ? B::columns : B::rows) == depth,
                  "imbrex: the shapes of the operands do not multiply to the accumulator's");
    constexpr int step = 32 / static_cast<int>(sizeof(a_element));
    static_assert(depth % step == 0, "imbrex: an mma takes K in steps of 32 bytes");
    for (int k = 0; k < depth; k += step) {
        warp_tile<a_element, M, step> a_rows;
        warp_tile<b_element, N, step> b_rows;
        if constexpr (TransposeA) {
            warp_tile<a_element, step, M, register_layout::column_major> across;
            load_operand<mma_operand::a>(scope, across, a.template subtile<step, M>(k, 0), here);
            a_rows = hw::transposed(across);
        } else {
            load_operand<mma_operand::a>(scope, a_rows, a.template subtile<M, step>(0, k), here);
        }
        if constexpr (TransposeB) {
            load_operand<mma_operand::b>(scope, b_rows, b.template subtile<N, step>(0, k), here);
        } else {
            warp_tile<b_element, step, N, register_layout::column_major> across;
            load_operand<mma_operand::b>(scope, across, b.template subtile<step, N>(k, 0), here);
            b_rows = hw::transposed(across);
        }
        hw::mma_sync(scope, accumulator, a_rows, b_rows, here);
    }
}

template <class Operand>
concept in_shared_memory = requires(const Operand& operand) {
    operand.at(0, 0);
    operand.template subtile<16, 16>(0, 0);
};

}  // namespace detail

template <class C, int M, int N, detail::in_shared_memory A, detail::in_shared_memory B>
IMBREX_KERNEL void mma_ab(const warp& scope, warp_tile<C, M, N>& accumulator, const A& a, const B& b,
                          source here = source::current()) {
    detail::mma_from_shared<false, false>(scope, accumulator, a, b, here);
}
template <class C, int M, int N, detail::in_shared_memory A, detail::in_shared_memory B>
IMBREX_KERNEL void mma_abt(const warp& scope, warp_tile<C, M, N>& accumulator, const A& a, const B& b,
                           source here = source::current()) {
    detail::mma_from_shared<false, true>(scope, accumulator, a, b, here);
}
template <class C, int M, int N, detail::in_shared_memory A, detail::in_shared_memory B>
IMBREX_KERNEL void mma_atb(const warp& scope, warp_tile<C, M, N>& accumulator, const A& a, const B& b,
                           source here = source::current()) {
    detail::mma_from_shared<true, false>(scope, accumulator, a, b, here);
}
template <class C, int M, int N, detail::in_shared_memory A, detail::in_shared_memory B>
IMBREX_KERNEL void mma_atbt(const warp& scope, warp_tile<C, M, N>& accumulator, const A& a, const B& b,
                            source here = source::current()) {
    detail::mma_from_shared<true, true>(scope, accumulator, a, b, here);
}

}  // namespace imbrex
