// architectures: 80 89 90a 120a
// The sm_80 decode kernel in some of its shapes: small and large head dims, few and many rows, an e4m3 cache, each
// output mode.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode/ampere.hpp>
#include <imbrex/kernels/paged_decode/heuristics.hpp>

using namespace imbrex;

template <class In, int HeadDim, int Groups, class Mask, class Score, attention_output_mode Result, class Cache = In>
void launch_decode() {
    using kernel = paged_decode_ampere<In, HeadDim, Mask, Score,
                                       decode_ampere_shape_for(HeadDim, Groups, sizeof(Cache)), Result, Cache>;
    device::launch<kernel>({1}, typename kernel::arguments{});
}

void launch_decodes() {
    launch_decode<bf16, 64, 1, causal_mask, score_mod::identity, attention_output_mode::normalised, e4m3>();
    launch_decode<fp16, 96, 4, window_mask, score_mod::softcap, attention_output_mode::normalised>();
    launch_decode<bf16, 256, 1, causal_mask, score_mod::identity, attention_output_mode::partial>();
    launch_decode<bf16, 256, 4, causal_mask, score_mod::additive_bias, attention_output_mode::normalised>();
}
