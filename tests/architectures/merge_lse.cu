// architectures: 80 89 100a 120a
// merge_lse: partial outputs cleared, merged and rounded, on every GPU from sm_80 on.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/merge_lse.hpp>

using namespace imbrex;

template <class Kernel>
void launch_one() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all() {
    launch_one<output_rows_kernel<clear_outputs_step, 4, 64, row_alignment::aligned>>();
    launch_one<output_rows_kernel<merge_lse_step<float>, 2, 128, row_alignment::aligned>>();
    launch_one<output_rows_kernel<merge_lse_step<bf16>, 1, 256, row_alignment::unaligned>>();
    launch_one<output_rows_kernel<downconvert_step<fp16>, 1, 256, row_alignment::aligned>>();
}
