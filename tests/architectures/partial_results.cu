// architectures: 80 89 100a 120a
// Results of some of the keys, cleared, merged and rounded, on every GPU from sm_80 on.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/partial_results.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<results_kernel<clear_step, 4, 64, row_chunks::whole>>();
    launch_one<results_kernel<merge_step<float>, 2, 128, row_chunks::whole>>();
    launch_one<results_kernel<merge_step<bf16>, 1, 256, row_chunks::ragged>>();
    launch_one<results_kernel<round_step<fp16>, 1, 256, row_chunks::whole>>();
}
