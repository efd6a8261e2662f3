// architectures: 90a
// The Hopper kernels of attention_backward.
#include <imbrex/kernels/attention_backward.hpp>

namespace imbrex {

constexpr attention_backward_options options{.head_dims = {64, 128}, .targets = kernel_targets::hopper};

template class attention_backward<bf16, options, causal_mask, score_mod::softcap>;
#if !defined(IMBREX_FEW_SHAPES)
template class attention_backward<bf16, options, full_mask>;
template class attention_backward<bf16, options, causal_mask>;
#endif

// The chain rule: the gradient of a bias after a softcap.
constexpr attention_backward_options chain{.head_dims = {128}, .targets = kernel_targets::hopper};
using bias_after_softcap = decltype(score_mod::compose(score_mod::softcap{}, score_mod::additive_bias_with_gradient{}));

template class attention_backward<bf16, chain, causal_mask, bias_after_softcap>;

}  // namespace imbrex
