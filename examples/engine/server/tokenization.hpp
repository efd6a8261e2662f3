// POST /tokenize and /detokenize, in the form of llama.cpp and vLLM.
#pragma once

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

api_reply tokenize(const api_context& context, const json& body);
api_reply detokenize(const api_context& context, const json& body);

}  // namespace imbrex::engine::server
