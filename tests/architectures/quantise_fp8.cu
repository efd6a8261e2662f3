// architectures: 80 89 100a 120a
// quantise_fp8 on every GPU from sm_80 on, for each width of head_dim and height of a block.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/quantise_fp8.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<quantise_fp8<bf16>::kernel<32, 64, true>>();
    launch_one<quantise_fp8<fp16>::kernel<32, 128, false>>();
    launch_one<quantise_fp8<fp16>::kernel<64, 64, true>>();
    launch_one<quantise_fp8<bf16>::kernel<64, 64, false>>();
    launch_one<quantise_fp8<bf16>::kernel<64, 128, true>>();
    launch_one<quantise_fp8<fp16>::kernel<128, 64, true>>();
    launch_one<quantise_fp8<bf16>::kernel<128, 64, false>>();
    launch_one<quantise_fp8<bf16>::kernel<32, 64, true, quantise_fp8_pass::maxima>>();
    launch_one<quantise_fp8<fp16>::kernel<64, 64, false, quantise_fp8_pass::maxima>>();
    launch_one<quantise_fp8<bf16>::kernel<128, 64, true, quantise_fp8_pass::maxima>>();
}
