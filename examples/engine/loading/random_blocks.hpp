// Random weights in ggml's blocks, to measure models of such types without a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/loading/model_config.hpp"
#include "engine/loading/weight_type.hpp"

namespace imbrex::engine {

// The type of a weight in a random file of this kind: "bf16", with MXFP4 for the experts of GPT-OSS; a type of blocks for
// all matrices, such as "q6_K"; or a mixture of llama.cpp: "q4_K_M" of q4_K and q6_K, "mxfp4_moe" with MXFP4 for experts and
// q8_0 for the rest. Rows that have no whole blocks of 256 become q8_0, or else bf16. Throws for other names.
weight_type random_weight_type(std::string_view kind, const model_config& config, const expected_weight& weight);

// Fills whole blocks with random bits. The weights have a mean of about 0, and this standard deviation.
void fill_with_random_blocks(weight_type type, std::span<std::byte> bytes, float deviation, std::uint64_t seed);

}  // namespace imbrex::engine
