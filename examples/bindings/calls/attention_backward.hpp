// The arguments of the binding attention_backward.
#pragma once

#include "attention.hpp"

namespace imbrex::bindings {

struct attention_backward_call : attention_inputs {
    tensor out = {};
    tensor d_out = {};
    tensor lse2 = {};
    tensor delta = {};  // instead of out: rowsum(dO * O)
    tensor d_q = {}, d_k = {}, d_v = {};
    tensor d_sinks = {};  // optional
};

}  // namespace imbrex::bindings
