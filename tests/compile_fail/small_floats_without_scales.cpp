// 4-bit floats must be dequantised with their scales.
// expect: imbrex: 4-bit floats are dequantised with their scales
#include <imbrex/ops/register/dequantise.hpp>

void unpack(imbrex::warpgroup& self, imbrex::warpgroup_tile<imbrex::bf16, 64, 64>& to,
            const imbrex::packed_tile<imbrex::e2m1x2, 64, 64>& from) {
    imbrex::dequantise(self, to, from);
}

int main() {}
