// The arguments of the binding layer_norm.
#pragma once

#include "../tensor.hpp"

namespace imbrex::bindings {

struct layer_norm_call {
    tensor x, out;
    tensor weight = {}, bias = {};  // optional
    tensor residual = {};           // optional; becomes x + residual
    float epsilon = 1e-5f;
};

}  // namespace imbrex::bindings
