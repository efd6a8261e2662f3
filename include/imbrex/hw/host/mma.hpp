// mma.sync in the host world: operands and accumulator in registers, complete at once.
#pragma once

#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/host_gemm.hpp>

namespace imbrex::hw {

// accumulator += a * transpose(b). If b has more rows than the accumulator has columns, the first ones.
template <class Scope, class C, class A, class B, int M, int N, int K, int Rows>
void mma_sync(const Scope& scope, fragment<C, M, N, 1>& accumulator, const fragment<A, M, K, 1>& a,
              const fragment<B, Rows, K, 1>& b, source here = source::current()) {
    static_assert(Rows >= N, "imbrex: the B operand of mma.sync has fewer rows than the accumulator has columns");
    const context c = enter(scope, "mma", here);
    if (!c) return;
    touch_fragment(c, a, use::read, "mma", here);
    touch_fragment(c, b, use::read, "mma", here);
    touch_fragment(c, accumulator, use::update, "mma", here);
    multiply(accumulator.values, N, operand_view<A>{a.values, K, 1}, operand_view<B>{b.values, K, 1}, M, N, K, true);
    spend_lanes(c, 2.0 * M * N * K / 128, "mma");
}

}  // namespace imbrex::hw
