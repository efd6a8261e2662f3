// Compile-time options of attention_backward.
//
//     constexpr attention_backward_options options{.head_dims = {128}, .deterministic = true};
//     using backward = attention_backward<bf16, options, causal_mask>;
//
// List only the head_dims you use: each one is several kernels to compile. A problem with another head_dim uses the next
// larger one, padded with zeros.
#pragma once

#include <imbrex/core/kernel_targets.hpp>
#include <imbrex/kernels/attention/options.hpp>

#include <type_traits>

namespace imbrex {

// What a launch writes.
//
//   rounded      dQ, dK and dV in the type of the inputs
//   accumulated  fp32 tensors, to which the launch adds its gradients: for keys or queries that arrive in parts, as in
//                ring attention. The caller clears them before the first launch
enum class attention_gradients { rounded, accumulated };

template <class In, attention_gradients Gradients>
using attention_gradient = std::conditional_t<Gradients == attention_gradients::rounded, In, float>;

struct attention_backward_options {
    attention_head_dim_set head_dims = all_attention_head_dims;
    kernel_targets targets = kernel_targets::all;
    bool deterministic = false;  // dQ is summed in a fixed order, too: the same bits in every run
    attention_gradients gradients = attention_gradients::rounded;
};

}  // namespace imbrex
