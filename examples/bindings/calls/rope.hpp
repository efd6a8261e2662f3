// The arguments of the binding rope.
#pragma once

#include "../tensor.hpp"

#include <imbrex/kernels/rope/style.hpp>

namespace imbrex::bindings {

struct rope_call {
    tensor x, out;                    // [token, head, column]; out may be x
    tensor positions = {};            // optional int32, one per token
    std::int64_t first_position = 0;  // of the first token, without positions
    tensor inv_freq = {};             // int64, one per pair of columns: 2^-64 turns per position
    rope_style style = rope_style::half_split;
    float attention_factor = 1;
};

}  // namespace imbrex::bindings
