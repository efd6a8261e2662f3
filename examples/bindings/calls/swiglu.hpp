// The arguments of the binding swiglu.
#pragma once

#include "../tensor.hpp"

namespace imbrex::bindings {

struct swiglu_call {
    tensor gate, up, out;
};

}  // namespace imbrex::bindings
