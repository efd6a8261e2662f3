// architectures: 80 89 120a
// Sampling, on every GPU from sm_80 on; by several blocks a row on Hopper, where a program for others has an empty kernel.
// For Hopper itself, the tests of sampling have the same kernels.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/sample.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({Kernel::sharers}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<sample_tokens<float>::kernel<row_chunks::whole>>();
    launch_one<sample_tokens<float>::kernel<row_chunks::whole, 8>>();
    launch_one<sample_tokens<float>::kernel<row_chunks::ragged>>();
    launch_one<sample_tokens<bf16>::kernel<row_chunks::whole>>();
}
