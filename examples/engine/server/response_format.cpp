#include "engine/server/response_format.hpp"

#include <imbrex/core/error.hpp>
#include <utility>

namespace imbrex::engine::server {

shared_constraint constraint_cache::find(const std::string& key) const {
    const std::scoped_lock lock(mutex_);
    const auto found = constraints_.find(key);
    return found == constraints_.end() ? nullptr : found->second;
}

void constraint_cache::keep(const std::string& key, shared_constraint made) {
    constexpr std::size_t most = 64;
    const std::scoped_lock lock(mutex_);
    if (constraints_.size() >= most) constraints_.clear();
    constraints_[key] = std::move(made);
}

shared_constraint read_response_format(const api_context& context, request_fields& fields,
                                       const std::vector<int>& chat_prompt) {
    const json* const format = fields.object("response_format");
    if (format == nullptr) return nullptr;
    const std::string key = dumped(*format);
    shared_constraint made = context.constraints->find(key);
    try {
        if (!made) {
            made = constraint_of_response_format(*format, context.model.token_trie());
            context.constraints->keep(key, made);
        }
        if (!made || chat_prompt.empty() || !context.format) return made;
        return context.format->constrained_answer(made, chat_prompt, context.model.token_trie());
    } catch (const error& failure) {
        throw api_error(400, str_cat("response_format: ", failure.what()), "response_format");
    }
}

}  // namespace imbrex::engine::server
