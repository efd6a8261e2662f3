// The field "response_format": text, json_object or json_schema, by constraints on the tokens (grammar/structured_output.hpp).
#pragma once

#include <vector>

#include "engine/grammar/structured_output.hpp"
#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

// Null for any text. In a chat, the reasoning before the answer to this prompt is free.
shared_constraint read_response_format(const api_context& context, request_fields& fields,
                                       const std::vector<int>& chat_prompt = {});

}  // namespace imbrex::engine::server
