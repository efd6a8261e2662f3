// architectures: 80 89 100a 120a
// The sm_80 attention kernel, for every GPU from sm_80 on: all head dims, a mask, score_mods, each output mode, paged
// KV, 8-bit KV caches.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention/ampere.hpp>

using namespace imbrex;

template <class Kernel>
void launch_attention() {
    device::launch<Kernel>({1}, typename Kernel::arguments{});
}

void launch_attentions() {
    launch_attention<attention_ampere<bf16, 64, 64, causal_mask>>();
    launch_attention<attention_ampere<fp16, 96, 96, window_mask, score_mod::softcap>>();
    launch_attention<attention_ampere<bf16, 128, 128, causal_mask, score_mod::additive_bias>>();
    launch_attention<attention_ampere<fp16, 192, 128>>();
    launch_attention<attention_ampere<bf16, 256, 256, causal_mask>>();
    launch_attention<attention_ampere<bf16, 128, 128, full_mask, score_mod::identity,
                                      attention_ampere_shape_for(128, 128, true), attention_output_mode::merged>>();
    launch_attention<attention_ampere<bf16, 256, 256, full_mask, score_mod::identity,
                                      attention_ampere_shape_for(256, 256), attention_output_mode::merged>>();
    launch_attention<attention_ampere<bf16, 128, 128, causal_mask, score_mod::identity,
                                      attention_ampere_shape_for(128, 128, true), attention_output_mode::partial>>();
    launch_attention<
        attention_ampere<bf16, 128, 128, causal_mask, score_mod::identity, attention_ampere_shape_for(128, 128, true),
                         attention_output_mode::normalised, paged_seqlens>>();
    launch_attention<
        attention_ampere<fp16, 256, 256, full_mask, score_mod::identity, attention_ampere_shape_for(256, 256),
                         attention_output_mode::normalised, paged_seqlens>>();
    launch_attention<attention_ampere<bf16, 128, 128, causal_mask, score_mod::identity,
                                      attention_ampere_shape_for(128, 128, true, true),
                                      attention_output_mode::normalised, paged_seqlens, e4m3>>();
    launch_attention<attention_ampere<fp16, 256, 256, causal_mask, score_mod::identity,
                                      attention_ampere_shape_for(256, 256, true, true),
                                      attention_output_mode::normalised, paged_seqlens, std::int8_t>>();
}
