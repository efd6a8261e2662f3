// POST /v1/responses: OpenAI's newer form of a chat, for text and functions. Nothing is stored: each request has the whole
// conversation.
#pragma once

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

api_reply responses(const api_context& context, const json& body);

}  // namespace imbrex::engine::server
