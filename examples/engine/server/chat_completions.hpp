// POST /v1/chat/completions
#pragma once

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

api_reply chat_completions(const api_context& context, const json& body);

}  // namespace imbrex::engine::server
