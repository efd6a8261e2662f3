// The sampling parameters of a batch, as imbrex/kernels/sample.hpp reads them.
#pragma once

#include <imbrex/kernels/sample/options.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/serving/batch.hpp"

namespace imbrex::engine {

// Inputs of the sampling kernel besides the logits, for the entries that sample, in order.
struct sampling_arrays {
    std::vector<sample_options> options;
    std::vector<int> adjustment_offsets{0};
    std::vector<logit_adjustment> adjustments;  // tokens with a bias; with penalties also the tokens of the sequence
    int num_top_logprobs = 0;                   // maximum over the entries
    std::vector<int> token_mask_rows;           // for each entry: the index of its token mask, or -1
    int num_token_masks = 0;
};

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary);

// Whether the next token of a sequence has a mask, and the mask: what its constraint allows, and its EOS tokens where the
// text may end. They are also allowed where nothing else is.
bool has_token_mask(const sequence& one);
void write_token_mask(const sequence& one, std::span<std::uint32_t> mask);

}  // namespace imbrex::engine
