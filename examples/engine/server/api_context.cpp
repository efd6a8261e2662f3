#include "engine/server/api_context.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <imbrex/core/error.hpp>
#include <random>

namespace imbrex::engine::server {

std::string new_id(const char* prefix) {
    static thread_local std::mt19937_64 chance{std::random_device{}()};
    std::array<char, 33> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx%016llx", static_cast<unsigned long long>(chance()),
                  static_cast<unsigned long long>(chance()));
    return std::string(prefix) + digits.data();
}

std::int64_t unix_time() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

void check_model(const api_context& context, request_fields& fields) {
    const auto name = fields.text("model");
    if (!name || *name == context.settings.model_name) return;
    throw api_error(404, str_cat("model: ", shown(*name), "; this server has \"", context.settings.model_name, "\""),
                    "model", "model_not_found");
}

void check_prompt(const api_context& context, const char* field, const std::vector<int>& prompt) {
    const auto fail = [&](const auto&... parts) {
        throw api_error(400, str_cat(field, ": ", parts...), field, "context_length_exceeded");
    };
    if (prompt.empty()) throw api_error(400, str_cat(field, ": it is empty; at least one token is needed"), field);
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length >= context.max_sequence_length) {
        fail("it has ", length, " tokens; with at least one new token, at most ", context.max_sequence_length,
             " tokens are allowed");
    }
    const int most = context.settings.max_prompt_tokens;
    if (most > 0 && length > most) fail("it has ", length, " tokens; this server allows ", most);
    for (const int id : prompt) {
        if (id >= 0 && id < context.model.config().vocab_size) continue;
        throw api_error(400, str_cat(field, ": token ", id, "; the model has ", context.model.config().vocab_size),
                        field);
    }
}

}  // namespace imbrex::engine::server
