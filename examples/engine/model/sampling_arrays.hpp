// The sampling parameters of a batch, as imbrex/kernels/sample.hpp reads them.
#pragma once

#include <imbrex/kernels/sample/options.hpp>

#include <cstdint>
#include <span>
#include <vector>

#include "engine/serving/batch.hpp"

namespace imbrex::engine {

// The mask of a sampled token, from the state of its sequence's constraint; behind draft tokens, from a copy of it.
struct token_mask {
    const sequence* of = nullptr;
    constraint_progress behind_draft{};
};

// Inputs of the sampling kernel besides the logits, for the sampled positions, in order.
struct sampling_arrays {
    std::vector<sample_options> options;
    std::vector<int> adjustment_offsets{0};
    std::vector<logit_adjustment> adjustments;  // tokens with a bias; with penalties also the tokens of the sequence
    int num_top_logprobs = 0;                   // maximum over the entries
    std::vector<int> token_mask_rows;           // for each position: the index of its token mask, or -1
    std::vector<token_mask> token_masks;
};

sampling_arrays sampling_arrays_of(const batch& work, int vocabulary);

// What the constraint allows, and the EOS tokens where the text may end. They are also allowed where nothing else is.
void write_token_mask(const token_mask& of, std::span<std::uint32_t> mask);

}  // namespace imbrex::engine
