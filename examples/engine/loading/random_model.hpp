// Models with random weights, in the shapes of known ones, so that speed can be measured and programs tested without a download. Weights are
// bf16 and made in memory; each is as large as keeps activations near one. The tokenizer has a token for each byte, and made-up words for the
// ids above. What such a model writes is noise.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/model_files.hpp"

namespace imbrex::engine {

// llama-3.1-8b, qwen2.5-0.5b, qwen3-0.6b and tiny, which has two small layers.
std::span<const std::string_view> known_models();

// Refuses a name that is not among them.
model_config config_of_known_model(std::string_view name);

// The same seed gives the same weights, whatever the machine and its threads. The special tokens have the last ids of the vocabulary.
model_files random_model(const model_config& config, std::uint64_t seed, const std::vector<std::string>& special = {});

}  // namespace imbrex::engine
