// The field of a request with texts or tokens: "prompt" of completions, "input" of embeddings.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

using prompt_encoder = std::function<std::vector<int>(const std::string&)>;

// A text, tokens, or an array of either; an empty text if the field is absent. `choices` sequences of each must fit into
// the queue.
std::vector<std::vector<int>> read_prompts(const api_context& context, request_fields& fields, const char* name,
                                           int choices, const prompt_encoder& encode);

}  // namespace imbrex::engine::server
