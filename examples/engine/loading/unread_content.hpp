// Nothing that could change a model's results is silently ignored. gguf_metadata, weight_set and the reader of config.json
// record what the loader asked for; these functions refuse the rest, except what is known to have no effect.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "engine/loading/gguf.hpp"
#include "engine/loading/json_text.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

// Throws for a tensor that was not asked for. Buffers that other programs store (masks, positions, RoPE tables), biases
// of zeros and, with `is_tied`, the weights of the LM head have no effect.
void check_unread_weights(const weight_set& weights, bool is_tied, const std::string& file);

// Throws for a key of the architecture or the tokenizer that was not asked for, unless it is descriptive or has the
// value that changes nothing (attention.causal true, logit_scale 1).
void check_unread_keys(const gguf_metadata& metadata);

// The same for the fields of config.json and of its RoPE parameters; `read` has the names that were asked for.
void check_unread_fields(const json& config, const std::set<std::string, std::less<>>& read, const std::string& file);

}  // namespace imbrex::engine
