#include "engine/server/tokenization.hpp"

#include <imbrex/core/error.hpp>

#include "engine/server/chat_messages.hpp"
#include "engine/server/logprobs.hpp"

namespace imbrex::engine::server {

namespace {

// A text in "content" (llama.cpp) or "prompt" (vLLM), or a conversation in "messages".
std::vector<int> tokens_of(const api_context& context, request_fields& fields) {
    if (fields.find("messages") != nullptr) return read_chat_prompt(context, fields).tokens;
    const auto content = fields.text("content");
    const auto prompt = fields.text("prompt");
    if (content.has_value() == prompt.has_value())
        throw api_error(400, "content: one of \"content\", \"prompt\" and \"messages\" is needed", "content");
    const std::string& text = content ? *content : *prompt;
    // The defaults of the two: llama.cpp adds no special tokens, vLLM does.
    const bool adds_special = fields.boolean(content ? "add_special" : "add_special_tokens", prompt.has_value());
    const bool parses_special = fields.boolean("parse_special", true);
    if (adds_special) return context.model.encode_prompt(text, parses_special);
    return context.model.tokens().encode(text, {.add_special_tokens = false, .parse_special = parses_special});
}

}  // namespace

api_reply tokenize(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    const std::vector<int> tokens = tokens_of(context, fields);
    const bool with_pieces = fields.boolean("with_pieces", false);
    fields.refuse_unknown();
    json reply{{"count", tokens.size()}, {"max_model_len", context.max_sequence_length}, {"tokens", tokens}};
    if (with_pieces) {
        reply["tokens"] = json::array();
        for (const int id : tokens) {
            std::string piece = bytes_of(context.model.tokens(), id);
            reply["tokens"].push_back({{"id", id}, {"piece", std::move(piece)}});
        }
    }
    return {.body = dumped(reply)};
}

api_reply detokenize(const api_context& context, const json& body) {
    request_fields fields(body);
    check_model(context, fields);
    const json* const tokens = fields.array("tokens");
    if (tokens == nullptr) fields.fail("tokens", "an array of token ids is needed");
    std::vector<int> ids;
    for (const json& each : *tokens) {
        const bool is_token = each.is_number_integer() && each.get<std::int64_t>() >= 0 &&
                              each.get<std::int64_t>() < context.model.tokens().size();
        if (!is_token)
            fields.fail("tokens", str_cat("token ids from 0 to ", context.model.tokens().size() - 1, " are allowed"));
        ids.push_back(each.get<int>());
    }
    fields.refuse_unknown();
    const std::string text = context.model.tokens().decode(ids, tokenizer::special_tokens::shown);
    return {.body = dumped({{"content", text}, {"prompt", text}})};
}

}  // namespace imbrex::engine::server
