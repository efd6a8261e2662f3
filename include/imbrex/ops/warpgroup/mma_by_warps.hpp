// A warpgroup's product by its warps' own instruction (mma.sync) instead of wgmma: A in registers, B in shared memory, read
// by every warp for itself. It is done when it returns. For accumulators of few columns: there wgmma takes longer to be
// begun and waited for than to multiply, while these products mingle with whatever else the warps do.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/group_mma.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

// accumulator += A times B transposed
template <class T, int M, int N, int K, class Shared>
IMBREX_KERNEL void mma_abt_by_warps(const warpgroup& scope, group_tile<float, M, N>& accumulator,
                                    const group_tile<T, M, K>& a, const Shared& b, source here = source::current()) {
    static_assert(std::is_same_v<T, std::remove_const_t<typename Shared::element>>,
                  "imbrex: the operands of a product by warps have one type");
    static_assert(Shared::rows == N && Shared::columns == K,
                  "imbrex: the shapes of the operands do not multiply to the accumulator's");
    hw::group_mma(scope, accumulator, a, b, here);
}

}  // namespace imbrex
