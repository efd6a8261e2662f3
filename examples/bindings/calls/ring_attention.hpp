// The arguments of the binding ring_attention, and what the backward pass has in common with it. Tensors hold the rank's own
// tokens, [batch, token, head, head_dim], contiguous. The plan has the mask; its variants are named with window_mask.
#pragma once

#include "../any_transport.hpp"
#include "attention.hpp"

#include <imbrex/comm/ring_plan.hpp>

#include <string>

namespace imbrex::bindings {

struct ring_attention_inputs : attention_inputs {
    any_transport* comm = nullptr;
    const ring_plan* plan = nullptr;  // of the pass
};

struct ring_attention_call : ring_attention_inputs {
    tensor out = {};
    tensor lse2 = {};  // [head, batch, token]: base 2
};

inline std::string ring_attention_variant(const char* binding, const ring_attention_inputs& in,
                                          const std::string& score) {
    return attention_variant(binding, in, "window_mask", score);
}

}  // namespace imbrex::bindings
