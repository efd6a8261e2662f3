// architectures: 90a
// 8-bit attention on Hopper through its launcher, without the Ada-class kernel: every compiled head_dim, both
// accumulations, both layouts of V, scales per block, masks and score_mods; paged KV with an e4m3 output.
#include <imbrex/kernels/attention_fp8.hpp>

namespace imbrex {

constexpr attention_fp8_options promoted{.targets = kernel_targets::hopper};
constexpr attention_fp8_options fast{
    .head_dims = {64, 128, 256}, .accumulation = fp8_accumulation::fast, .targets = kernel_targets::hopper};
constexpr attention_fp8_options paged{.head_dims = {128}, .kv = kv_layout::paged, .targets = kernel_targets::hopper};
constexpr attention_fp8_options k_major{
    .v_layout = fp8_v_layout::k_major, .shapes = fp8_shapes::one, .targets = kernel_targets::hopper};

template class attention_fp8<bf16, fast, causal_mask>;
template class attention_fp8<fp16, k_major, full_mask, fp8_scaling::per_head>;
template class attention_fp8<bf16, promoted, window_mask, fp8_scaling::per_block<>, score_mod::softcap>;
template class attention_fp8<e4m3, paged, causal_mask, fp8_scaling::per_page<>>;
#if !defined(IMBREX_FEW_SHAPES)
template class attention_fp8<bf16, promoted, full_mask>;
template class attention_fp8<bf16, promoted, causal_mask>;
template class attention_fp8<bf16, fast, full_mask>;
template class attention_fp8<bf16, promoted, causal_mask, fp8_scaling::per_block<>>;
template class attention_fp8<bf16, fast, full_mask, fp8_scaling::per_block<128, 256>>;
template class attention_fp8<bf16, attention_fp8_options{.head_dims = {256}, .targets = kernel_targets::hopper},
                             causal_mask>;
#endif

}  // namespace imbrex
