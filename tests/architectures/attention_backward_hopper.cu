// architectures: 90a
// The Hopper kernels of attention_backward.
#include <imbrex/kernels/attention_backward.hpp>

namespace imbrex {

constexpr attention_backward_options options{.head_dims = {64, 128}, .targets = kernel_targets::hopper};

template class attention_backward<bf16, options, full_mask>;
template class attention_backward<bf16, options, causal_mask>;
template class attention_backward<bf16, options, causal_mask, score_mod::softcap>;

}  // namespace imbrex
