// The arguments of the binding rms_norm.
#pragma once

#include "../tensor.hpp"

namespace imbrex::bindings {

struct rms_norm_call {
    tensor x, weight, out;
    tensor residual = {};  // optional; becomes x + residual
    float epsilon = 1e-6f;
};

}  // namespace imbrex::bindings
