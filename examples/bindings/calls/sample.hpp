// The arguments of the binding sample.
#pragma once

#include "../tensor.hpp"

#include <cstdint>
#include <string>

namespace imbrex::bindings {

// One number for all rows, or a tensor with one per row, which then counts.
template <class T>
struct per_row {
    T all = {};
    tensor each = {};
};

struct sample_call {
    tensor logits;  // [row, token]
    per_row<float> temperature = {1};
    per_row<int> top_k = {};
    per_row<float> top_p = {1};
    per_row<float> min_p = {};
    per_row<std::int64_t> seed = {};  // one for all: combined with the row; one per row: as it is
    per_row<int> position = {};
    tensor tokens = {};               // int32 [row]
    tensor logprobs = {};             // [row]; optional
    tensor top_logprobs_tokens = {};  // int32 [row, count]; optional
    tensor top_logprobs = {};         // [row, count]
};

// The template argument of a variant: bf16.
inline std::string sample_variant(const sample_call& in) {
    return str_cat("sample, ", type_of(in.logits.type));
}

}  // namespace imbrex::bindings
