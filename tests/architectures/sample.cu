// architectures: 80 89 120a
// Sampling, on every GPU from sm_80 on; by several blocks a row on Hopper, where a program for others has an empty kernel.
// For Hopper itself, the tests of sampling have the same kernels.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/sample.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({Kernel::cluster_size}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<sample_tokens<float>::kernel<row_alignment::aligned>>();
    launch_one<sample_tokens<float>::kernel<row_alignment::aligned, 8>>();
    launch_one<sample_tokens<float>::kernel<row_alignment::unaligned>>();
    launch_one<sample_tokens<bf16>::kernel<row_alignment::aligned>>();
}
