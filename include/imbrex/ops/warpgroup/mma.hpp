// Matrix products of a warpgroup (wgmma): B in shared memory, A in shared memory or in registers, the accumulator in
// registers. The letters name the product: `ab` is A B, `abt` is A times B transposed, and so on. A transposed operand
// is read in place (MN-major). 8-bit operands must be abt: the hardware reads them K-major only.
//
// The `_async` forms return while the tensor cores work. Each is one group (wgmma.commit_group); `wait_mma<N>` waits
// until all but the newest N groups have completed. Until then the accumulator and the operands must not be accessed.
// The other forms wait before they return.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/products.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// Whether a product is added to the accumulator or replaces it.
enum class accumulation { add, replace };

namespace detail {

template <bool TransposeA, bool TransposeB, class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_group(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                             accumulation how, source here) {
    constexpr int depth = TransposeA ? A::rows : A::columns;
    static_assert(M % 64 == 0, "imbrex: a warpgroup's product has a multiple of 64 rows");
    static_assert((TransposeA ? A::columns : A::rows) == M && (TransposeB ? B::rows : B::columns) == N &&
                      (TransposeB ? B::columns : B::rows) == depth,
                  "imbrex: the shapes of the operands do not multiply to the accumulator's");
    static_assert(sizeof(typename B::element) > 1 || (!TransposeA && TransposeB),
                  "imbrex: wgmma multiplies 8-bit operands only as A times B transposed (mma_abt)");
    hw::wgmma<TransposeA, TransposeB>(scope, accumulator, a, b, how == accumulation::add, here);
    hw::wgmma_commit(scope, here);
}

}  // namespace detail

// For kernels that take the transpositions as template arguments: `transposed` reads an operand transposed in place.
enum class operand_transpose { none, transposed };

template <operand_transpose A, operand_transpose B, class C, int M, int N, class Left, class Right>
IMBREX_KERNEL void mma_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const Left& a,
                             const Right& b, accumulation how = accumulation::add, source here = source::current()) {
    detail::mma_group<A == operand_transpose::transposed, B == operand_transpose::transposed>(scope, accumulator, a, b,
                                                                                              how, here);
}

// Waits until all but the newest Left groups of products have completed.
template <int Left = 0>
IMBREX_KERNEL void wait_mma(const warpgroup& scope, source here = source::current()) {
    hw::wgmma_wait<Left>(scope, here);
}

// The same, with the accumulator that is accessed next: keeps the compiler, which does not know that the tensor cores
// write it asynchronously, from reading it before the wait.
template <int Left = 0, class C, int M, int N>
IMBREX_KERNEL void wait_mma(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator,
                            source here = source::current()) {
    hw::wgmma_wait<Left>(scope, here);
    hw::wgmma_guard(accumulator);
}
template <int Left = 0, class C, int M, int N, class D, int P, int Q>
IMBREX_KERNEL void wait_mma(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator,
                            warpgroup_tile<D, P, Q>& other, source here = source::current()) {
    wait_mma<Left>(scope, accumulator, here);
    hw::wgmma_guard(other);
}

template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_ab_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                                accumulation how = accumulation::add, source here = source::current()) {
    detail::mma_group<false, false>(scope, accumulator, a, b, how, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_abt_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                                 accumulation how = accumulation::add, source here = source::current()) {
    detail::mma_group<false, true>(scope, accumulator, a, b, how, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_atb_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                                 accumulation how = accumulation::add, source here = source::current()) {
    detail::mma_group<true, false>(scope, accumulator, a, b, how, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_atbt_async(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                                  accumulation how = accumulation::add, source here = source::current()) {
    detail::mma_group<true, true>(scope, accumulator, a, b, how, here);
}

template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_ab(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                          accumulation how = accumulation::add, source here = source::current()) {
    mma_ab_async(scope, accumulator, a, b, how, here);
    wait_mma(scope, accumulator, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_abt(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                           accumulation how = accumulation::add, source here = source::current()) {
    mma_abt_async(scope, accumulator, a, b, how, here);
    wait_mma(scope, accumulator, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_atb(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                           accumulation how = accumulation::add, source here = source::current()) {
    mma_atb_async(scope, accumulator, a, b, how, here);
    wait_mma(scope, accumulator, here);
}
template <class C, int M, int N, class A, class B>
IMBREX_KERNEL void mma_atbt(const warpgroup& scope, warpgroup_tile<C, M, N>& accumulator, const A& a, const B& b,
                            accumulation how = accumulation::add, source here = source::current()) {
    mma_atbt_async(scope, accumulator, a, b, how, here);
    wait_mma(scope, accumulator, here);
}

}  // namespace imbrex
