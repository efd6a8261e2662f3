#include "engine/server/prompts.hpp"

#include <algorithm>
#include <imbrex/core/error.hpp>

namespace imbrex::engine::server {

namespace {

constexpr std::size_t most_prompts = 2048;

bool are_tokens(const json& value) {
    return value.is_array() && !value.empty() && std::ranges::all_of(value, [](const json& one) {
               return one.is_number_integer() && one.get<std::int64_t>() >= 0 && one.get<std::int64_t>() < (1 << 30);
           });
}

}  // namespace

std::vector<std::vector<int>> read_prompts(const api_context& context, request_fields& fields, const char* name,
                                           int choices, const prompt_encoder& encode) {
    const auto encoded = [&](const json& prompt) {
        if (prompt.is_string()) return encode(prompt.get_ref<const std::string&>());
        if (!are_tokens(prompt))
            fields.fail(name,
                        "a string, an array of strings, an array of token ids, or an array of such arrays is allowed");
        return prompt.get<std::vector<int>>();
    };
    const json* const prompt = fields.find(name);
    static const json empty = "";
    std::vector<std::vector<int>> all;
    if (prompt == nullptr || !prompt->is_array() || are_tokens(*prompt)) {
        all.push_back(encoded(prompt == nullptr ? empty : *prompt));
    } else {
        if (prompt->empty() || prompt->size() > most_prompts)
            fields.fail(name, str_cat("an array of 1 to ", most_prompts, " prompts is allowed"));
        for (const json& each : *prompt) all.push_back(encoded(each));
    }
    for (const std::vector<int>& each : all) check_prompt(context, name, each);
    const auto sequences = static_cast<std::int64_t>(all.size()) * choices;
    const service_limits& limits = context.service.limits();
    if (sequences > limits.running + limits.queue) {
        throw api_error(400,
                        str_cat(name, ": ", all.size(), " prompts with \"n\": ", choices, " are ", sequences,
                                " sequences; this server allows ", limits.running + limits.queue),
                        name);
    }
    return all;
}

}  // namespace imbrex::engine::server
