// wgmma reads 8-bit operands K-major only.
// expect: wgmma multiplies 8-bit operands only as A times B transposed (mma_abt)
#include <imbrex/imbrex.hpp>

using namespace imbrex;

void wrong(warpgroup& self, warpgroup_tile<float, 64, 128>& sum, const shared_tile<e4m3, 64, 64>& a,
           const shared_tile<e4m3, 64, 128>& b) {
    mma_ab(self, sum, a, b);
}
