// architectures: 80 89 100a 120a
// The sm_80 kernels of attention_backward, for every GPU from sm_80 on: all tile shapes, a mask, score_mods with a
// derivative and with gradients of their parameters, accumulated gradients and dQ in a fixed order.
#include <imbrex/kernels/attention_backward.hpp>

namespace imbrex {

constexpr attention_backward_options ordered{.head_dims = {64, attention_head_dims(192, 128)},
                                             .deterministic = true,
                                             .gradients = attention_gradients::accumulated};
using bias = score_mod::additive_bias_with_gradient;

#if !defined(IMBREX_FEW_SHAPES)
constexpr attention_backward_options all_shapes{.head_dims = {64, 96, 128, attention_head_dims(192, 128), 192, 256}};
template class attention_backward<bf16, all_shapes, causal_mask>;
#endif
template class attention_backward<bf16, ordered, window_mask, score_mod::softcap>;
template class attention_backward<fp16, attention_backward_options{.head_dims = {128}}, chunked_mask, bias>;

}  // namespace imbrex
