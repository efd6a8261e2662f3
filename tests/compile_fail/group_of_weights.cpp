// The group size of scales must divide the blocks of packed weights.
// expect: imbrex: a group of weights is 32, 64 or 128 of K
#include <imbrex/kernels/gemm/quantised_weights.hpp>

int main() {
    return imbrex::int4_weights<imbrex::bf16, 48>::block_k;
}
