// architectures: 80 89 120a
// Sampling on every GPU from sm_80 on. The cooperative kernel (several blocks per row) is for Hopper and empty
// elsewhere; the tests of sampling compile it for Hopper.
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
    launch_one<sample_tokens<float>::kernel<row_alignment::aligned, 1, true>>();
    launch_one<sample_tokens<float>::kernel<row_alignment::unaligned>>();
    launch_one<sample_tokens<bf16>::kernel<row_alignment::aligned>>();
}
