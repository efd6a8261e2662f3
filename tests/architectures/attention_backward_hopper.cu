// architectures: 90a
// The Hopper kernels of attention_backward.
#include <imbrex/kernels/attention_backward.hpp>

namespace imbrex {

template class attention_backward<bf16, attention_options{.head_dims = {64, 128}}, full_mask>;
template class attention_backward<bf16, attention_options{.head_dims = {64, 128}}, causal_mask>;
template class attention_backward<bf16, attention_options{.head_dims = {64, 128}}, causal_mask, score_mod::softcap>;

}  // namespace imbrex
