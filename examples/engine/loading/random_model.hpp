// Models with random weights in the shapes of known models, for benchmarks and tests without a download. The scale
// of the weights keeps activations near 1. The tokenizer has a token per byte and invented words for the remaining ids.
// The generated text is noise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/model_files.hpp"

namespace imbrex::engine {

// llama-3.1-8b, qwen2.5-0.5b, qwen3-0.6b, gemma-3-1b, smollm2-135m, gpt-oss-20b, qwen3-30b-a3b and tiny (two small
// layers).
std::span<const std::string_view> known_models();

// Throws for an unknown name.
model_config config_of_known_model(std::string_view name);

// This shape with the vocabulary of another model, special tokens included: a draft model for it.
model_config with_vocabulary_of(model_config shape, const model_config& other);

// The same seed gives the same weights on every machine. Special tokens have the last ids of the vocabulary. The kind is
// that of random_blocks.hpp: bf16, q4_K_M or a type of blocks.
model_files random_model(const model_config& config, std::uint64_t seed, const std::vector<std::string>& special = {},
                         std::string_view kind = "bf16");

}  // namespace imbrex::engine
