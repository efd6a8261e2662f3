// The arguments of the binding attention_forward.
#pragma once

#include "attention.hpp"

namespace imbrex::bindings {

struct attention_forward_call : attention_inputs {
    tensor out = {};
    tensor lse2 = {};  // [batch, head, query] or [head, token]: base 2
};

}  // namespace imbrex::bindings
