// The arguments of the binding ring_attention_backward.
#pragma once

#include "ring_attention.hpp"

namespace imbrex::bindings {

struct ring_attention_backward_call : ring_attention_inputs {
    tensor d_out = {};
    tensor lse2 = {};   // [head, batch, token], of the forward pass
    tensor delta = {};  // likewise: rowsum(dO * O)
    tensor d_q = {}, d_k = {}, d_v = {};
    tensor d_sinks = {};  // optional: over the rank's own queries
};

}  // namespace imbrex::bindings
