// Log-probabilities as the chat and completion endpoints report them.
#pragma once

#include <string>
#include <vector>

#include "engine/server/request_fields.hpp"
#include "engine/serving/sampled_token.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine::server {

// The bytes of a token; empty for padding of the vocabulary.
inline std::string bytes_of(const tokenizer& tokens, int token) {
    return token < tokens.size() ? tokens.at(token).bytes : std::string();
}

// {"token": ..., "logprob": ..., "bytes": [...], "top_logprobs": [...]}, as in a chat completion.
inline json chat_logprob(const tokenizer& tokens, const sampled_token& sampled, int top) {
    const auto described = [&](int token, float logprob) {
        const std::string bytes = bytes_of(tokens, token);
        json list = json::array();
        for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
        return json{{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(list)}};
    };
    json one = described(sampled.token, sampled.logprob);
    one["top_logprobs"] = json::array();
    for (std::size_t i = 0; i < sampled.top_logprobs.size() && i < static_cast<std::size_t>(top); ++i)
        one["top_logprobs"].push_back(described(sampled.top_logprobs[i].token, sampled.top_logprobs[i].value));
    return one;
}

}  // namespace imbrex::engine::server
