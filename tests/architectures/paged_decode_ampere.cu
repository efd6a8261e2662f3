// architectures: 80 89 90a 120a
// The decode that every GPU from sm_80 on can run, in some of its shapes: small and great depths, few and many rows, a cache of 8-bit
// floats, results of each kind.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/paged_decode/ampere.hpp>
#include <imbrex/kernels/paged_decode/choice.hpp>

using namespace imbrex;

template <class In, int Depth, int Groups, class Mask, class Score, attention_result Result, class Cache = In>
void launch_decode() {
    using kernel = paged_decode_ampere<In, Depth, Mask, Score, decode_ampere_shape_for(Depth, Groups, sizeof(Cache)),
                                       Result, Cache>;
    device::launch<kernel>({1}, typename kernel::arguments{});
}

void launch_decodes() {
    launch_decode<bf16, 64, 1, causal_mask, plain_score, attention_result::normalised, e4m3>();
    launch_decode<fp16, 96, 4, window_mask, softcap, attention_result::normalised>();
    launch_decode<bf16, 256, 1, causal_mask, plain_score, attention_result::partial>();
    launch_decode<bf16, 256, 4, causal_mask, additive_bias, attention_result::normalised>();
}
