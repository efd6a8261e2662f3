// A call with an accumulator in flight makes ptxas serialise wgmma (C7510): checked_nvcc.sh must fail.
//
// expect: ptxas makes the kernel slower
#include <cute/arch/mma_sm90_gmma.hpp>

using instruction =
    cute::SM90::GMMA::MMA_64x16x16_F32BF16BF16_SS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;

__device__ __noinline__ float outside(float value) {
    return value * 1.5f;
}

__global__ void serialised(float* data, unsigned long long a, unsigned long long b) {
    float d[8] = {};
    cute::warpgroup_arrive();
    for (int i = 0; i < 4; ++i) {
        instruction::fma(a, b, d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
        d[0] = outside(d[0]);
    }
    cute::warpgroup_commit_batch();
    cute::warpgroup_wait<0>();
    for (int i = 0; i < 8; ++i) data[threadIdx.x * 8 + i] = d[i];
}
