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
    launch_attention<attention_forward<bf16, full_mask, score_mod::identity, attention_output_mode::normalised,
                                       attention_head_dim_list<64>>>();
    launch_attention<attention_forward<bf16, causal_mask, score_mod::identity, attention_output_mode::normalised,
                                       attention_head_dim_list<128>>>();
    launch_attention<attention_forward<bf16, causal_mask, score_mod::identity, attention_output_mode::normalised,
                                       attention_head_dim_list<128>, kv_layout::paged>>();
    launch_attention<attention_forward<bf16, full_mask, score_mod::identity, attention_output_mode::partial,
                                       attention_head_dim_list<128>>>();
}
