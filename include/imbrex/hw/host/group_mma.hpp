// The product of a warpgroup's register tile and a shared tile in the host world: done at once, with ordinary reads.
#pragma once

#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/matrix_product.hpp>
#include <imbrex/hw/host/wgmma.hpp>

namespace imbrex::hw {

// accumulator += a * transpose(b).
template <class T, int M, int N, int K, class Shared>
void group_mma(const warpgroup& scope, fragment<float, M, N, 4>& accumulator, const fragment<T, M, K, 4>& a,
               const Shared& b, source here = source::current()) {
    const char* what = "mma by warps";
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, b, false, 0, what, here);
    touch_fragment(c, a, use::read, what, here);
    touch_fragment(c, accumulator, use::update, what, here);
    multiply(accumulator.values, N, operand_view<T>{a.values, K, 1}, shared_operand<false>(b), M, N, K, true);
    spend_lanes(c, 2.0 * M * N * K / 128, "mma");
}

}  // namespace imbrex::hw
