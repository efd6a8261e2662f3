// POST /v1/embeddings
#pragma once

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

api_reply embeddings(const api_context& context, const json& body);

}  // namespace imbrex::engine::server
