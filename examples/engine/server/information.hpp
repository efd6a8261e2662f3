// What clients and operators ask about the server: GET /v1/models, /health, /metrics, /openapi.json, and / for the chat page.
#pragma once

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

api_reply models(const api_context& context);

// 200, or 503 while the server drains or each step fails.
api_reply health(const api_context& context);

// In the text format of Prometheus.
api_reply metrics(const api_context& context);

api_reply openapi(const api_context& context);
api_reply page(const api_context& context);

}  // namespace imbrex::engine::server
