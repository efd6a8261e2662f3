// architectures: 89 90a 100a 120a
// The sm_89 kernel of 8-bit attention, for every GPU from sm_89 on: both head dims, both accumulations, both layouts of
// V, scales per block, masks and a score_mod.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_fp8/ada.hpp>

using namespace imbrex;

template <class Kernel>
void launch_attention() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_attentions() {
    using fp8_scaling::per_block, fp8_scaling::per_head, fp8_scaling::per_tensor, score_mod::identity;
    constexpr auto promoted = fp8_accumulation::promoted, fast = fp8_accumulation::fast;
    constexpr auto k_major = fp8_v_layout::k_major;
    launch_attention<attention_fp8_ada<bf16, 64, causal_mask>>();
    launch_attention<attention_fp8_ada<bf16, 128, full_mask>>();
    launch_attention<attention_fp8_ada<bf16, 128, causal_mask, identity, per_tensor, fast>>();
    launch_attention<attention_fp8_ada<fp16, 128, full_mask, identity, per_head, promoted, k_major>>();
    launch_attention<attention_fp8_ada<bf16, 128, window_mask, score_mod::softcap, per_block<>>>();
    launch_attention<attention_fp8_ada<fp16, 64, causal_mask, score_mod::softcap, per_block<>, fast, k_major>>();
}
