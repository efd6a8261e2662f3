// architectures: 90a
// Attention on Hopper as its launcher makes it: without a mask and causal, with a score and from pages, and a partial result.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_forward.hpp>

using namespace imbrex;

template <class Attention>
void launch_attention() {
    Attention::launch(world::device, typename Attention::problem{});
}

void launch_attentions() {
    launch_attention<
        attention_forward<bf16, full_mask, plain_score, attention_result::normalised, attention_tiles<64>>>();
    launch_attention<
        attention_forward<bf16, causal_mask, plain_score, attention_result::normalised, attention_tiles<128>>>();
    launch_attention<attention_forward<bf16, causal_mask, plain_score, attention_result::normalised,
                                       attention_tiles<128>, attention_keys::in_pages>>();
    launch_attention<
        attention_forward<bf16, full_mask, plain_score, attention_result::partial, attention_tiles<128>>>();
}
