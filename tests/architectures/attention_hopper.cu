// architectures: 90a
// Attention on Hopper through its launcher: unmasked and causal, with a score_mod, with paged KV, also of 8 bits, and
// a partial output.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_forward.hpp>

using namespace imbrex;

template <class Attention>
void launch_attention() {
    Attention::launch(world::device, typename Attention::problem{});
}

void launch_attentions() {
    launch_attention<attention_forward<bf16, attention_options{.head_dims = {64}}, full_mask>>();
    launch_attention<attention_forward<bf16, attention_options{.head_dims = {128}}, causal_mask>>();
    launch_attention<
        attention_forward<bf16, attention_options{.head_dims = {128}, .kv = kv_layout::paged}, causal_mask>>();
    launch_attention<attention_forward<
        bf16, attention_options{.head_dims = {128}, .kv = kv_layout::paged, .targets = kernel_targets::hopper},
        causal_mask, score_mod::identity, e4m3>>();
    launch_attention<attention_forward<
        bf16, attention_options{.head_dims = {64}, .kv = kv_layout::paged, .targets = kernel_targets::hopper},
        causal_mask, score_mod::identity, std::int8_t>>();
    launch_attention<attention_forward<
        bf16, attention_options{.head_dims = {128}, .output = attention_output_mode::partial}, full_mask>>();
}
