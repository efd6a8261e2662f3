// 64 x 32 times 64 x 128 has mismatched inner dimensions.
// expect: the shapes of the operands do not multiply to the accumulator's
#include <imbrex/imbrex.hpp>

using namespace imbrex;

void wrong(warpgroup& self, warpgroup_tile<float, 64, 128>& sum, const shared_tile<bf16, 64, 32>& a,
           const shared_tile<bf16, 64, 128>& b) {
    mma_ab(self, sum, a, b);
}
