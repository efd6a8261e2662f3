// The endpoints: which function answers which method and path. The functions know nothing of HTTP but the body.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "engine/server/api_context.hpp"

namespace imbrex::engine::server {

struct api_route {
    std::string_view method;  // GET or POST
    std::string_view path;
    bool needs_key;  // if the server has API keys
    api_reply (*answer)(const api_context& context, std::string_view body);
};

std::span<const api_route> api_routes();

// The route of a request. Throws api_error 404 for an unknown path, 405 for another method.
const api_route& route_of(std::string_view method, std::string_view path);

// "GET, OPTIONS": the methods of a path; empty for an unknown one.
std::string allowed_methods(std::string_view path);

}  // namespace imbrex::engine::server
