// What the sequences of a batch ask of a sampling, as the library's kernel reads it (imbrex/kernels/sample.hpp).
#pragma once

#include <imbrex/kernels/sample/options.hpp>

#include <vector>

#include "engine/serving/batch.hpp"

namespace imbrex::engine {

// What the kernel reads besides logits, for the entries that sample, in their order.
struct sampling_arrays {
    std::vector<sample_options> options;
    std::vector<int> adjustment_offsets{0};
    std::vector<logit_adjustment>
        adjustments;           // tokens with a bias, and where there are penalties those of the sequence
    int num_top_logprobs = 0;  // the most that any of them asks for
};

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary);

}  // namespace imbrex::engine
