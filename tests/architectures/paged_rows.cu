// architectures: 80 90a 120a
// Attention by rows to a paged cache, on every GPU from sm_80 on, at all depths.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_rows.hpp>

using namespace imbrex;

template <class Kernel>
void launch_rows() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all_rows() {
    launch_rows<paged_rows_kernel<float, 32>>();
    launch_rows<paged_rows_kernel<float, 64, window_mask, softcap>>();
    launch_rows<paged_rows_kernel<fp16, 256, window_mask, softcap>>();
    launch_rows<paged_rows_kernel<bf16, 128>>();
    launch_rows<paged_rows_kernel<float, 256, full_mask, plain_score, bf16>>();
}
