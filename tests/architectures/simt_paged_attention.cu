// architectures: 80 90a 120a
// simt_paged_attention on every GPU from sm_80 on, at all head dims.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/simt_paged_attention.hpp>

using namespace imbrex;

template <class Kernel>
void launch_rows() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_all_rows() {
    launch_rows<simt_paged_attention_kernel<float, 32>>();
    launch_rows<simt_paged_attention_kernel<float, 64, window_mask, score_mod::softcap>>();
    launch_rows<simt_paged_attention_kernel<fp16, 256, window_mask, score_mod::softcap>>();
    launch_rows<simt_paged_attention_kernel<bf16, 128>>();
    launch_rows<simt_paged_attention_kernel<float, 256, full_mask, score_mod::identity, bf16>>();
}
