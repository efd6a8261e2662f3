#include "engine/server/api_routes.hpp"

#include <imbrex/core/error.hpp>

#include "engine/server/chat_completions.hpp"
#include "engine/server/completions.hpp"
#include "engine/server/embeddings.hpp"
#include "engine/server/information.hpp"
#include "engine/server/responses.hpp"
#include "engine/server/tokenization.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::server {

namespace {

// An endpoint that takes a JSON body.
template <api_reply (*Answer)(const api_context&, const json&)>
api_reply with_json(const api_context& context, std::string_view body) {
    return Answer(context, parse_body(body));
}

template <api_reply (*Answer)(const api_context&)>
api_reply without_body(const api_context& context, std::string_view) {
    return Answer(context);
}

constexpr api_route routes[] = {
    {"POST", "/v1/chat/completions", true, with_json<chat_completions>},
    {"POST", "/v1/completions", true, with_json<completions>},
    {"POST", "/v1/responses", true, with_json<responses>},
    {"POST", "/v1/embeddings", true, with_json<embeddings>},
    {"GET", "/v1/models", true, without_body<models>},
    {"POST", "/tokenize", true, with_json<tokenize>},
    {"POST", "/detokenize", true, with_json<detokenize>},
    {"GET", "/health", false, without_body<health>},
    {"GET", "/metrics", true, without_body<metrics>},
    {"GET", "/openapi.json", false, without_body<openapi>},
    {"GET", "/", false, without_body<page>},
};

}  // namespace

std::span<const api_route> api_routes() {
    return routes;
}

std::string allowed_methods(std::string_view path) {
    std::string methods;
    for (const api_route& each : routes) {
        if (each.path == path) methods += std::string(each.method) + (each.method == "GET" ? ", HEAD, " : ", ");
    }
    return methods.empty() ? methods : methods + "OPTIONS";
}

const api_route& route_of(std::string_view method, std::string_view path) {
    for (const api_route& each : routes) {
        if (each.path == path && (each.method == method || (each.method == "GET" && method == "HEAD"))) return each;
    }
    const std::string allowed = allowed_methods(path);
    if (allowed.empty())
        throw api_error(404, str_cat("there is no ", printable(path), "; /openapi.json lists all paths"));
    throw api_error(405, str_cat(printable(method), " is not a method of ", std::string(path), "; ", allowed, " are"));
}

}  // namespace imbrex::engine::server
