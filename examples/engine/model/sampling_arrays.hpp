// The sampling parameters of a batch, as imbrex/kernels/sample.hpp reads them.
#pragma once

#include <imbrex/kernels/sample/options.hpp>

#include <vector>

#include "engine/serving/batch.hpp"

namespace imbrex::engine {

// Inputs of the sampling kernel besides the logits, for the entries that sample, in order.
struct sampling_arrays {
    std::vector<sample_options> options;
    std::vector<int> adjustment_offsets{0};
    std::vector<logit_adjustment> adjustments;  // tokens with a bias; with penalties also the tokens of the sequence
    int num_top_logprobs = 0;                   // maximum over the entries
};

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary);

}  // namespace imbrex::engine
