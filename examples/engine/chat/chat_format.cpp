#include "engine/chat/chat_format.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <imbrex/core/error.hpp>
#include <iterator>

#include "engine/chat/bounded_json.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using json = nlohmann::ordered_json;

constexpr std::pair<const char*, chat_template> styles[] = {
    {"llama2", chat_template::llama2}, {"llama3", chat_template::llama3}, {"chatml", chat_template::chatml}};

const char* name_of(chat_template style) {
    return style == chat_template::llama2 ? "Llama 2" : style == chat_template::llama3 ? "Llama 3" : "ChatML";
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    require(file.good() || file.eof(), "--template: ", path, " cannot be read");
    return text;
}

// The same JSON, with all texts guarded.
json guarded_json(const json& value, const tokenizer& tokens) {
    if (value.is_string()) return guarded(value.get_ref<const std::string&>(), tokens);
    if (!value.is_structured()) return value;
    json result = value;
    for (auto& [key, member] : result.items()) member = guarded_json(member, tokens);
    return result;
}

// For the templates that are code: texts alone.
std::vector<chat_message> plain_messages(const chat_request& request) {
    require(request.tools.is_null(), "tools need a model with a template of its own");
    std::vector<chat_message> all;
    for (const json& message : request.messages) {
        const auto text = message.find("content");
        require(text != message.end() && text->is_string(), "message ", all.size(),
                " has no text as its \"content\"; this model's template needs one");
        all.push_back({message.value("role", ""), text->get<std::string>()});
    }
    return all;
}

// Templates for harmony have names of their own for what OpenAI's API calls reasoning_content, and need the arguments of a
// call as an object.
void rename_for_harmony(json& messages) {
    for (json& message : messages) {
        if (message.contains("reasoning_content") && !message.contains("thinking"))
            message["thinking"] = message["reasoning_content"];
        if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
        for (json& call : message["tool_calls"]) {
            json& function = call.contains("function") ? call["function"] : call;
            if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
            if (auto arguments = parse_bounded_json(function["arguments"].get_ref<const std::string&>()))
                function["arguments"] = std::move(*arguments);
        }
    }
}

// By the vocabulary: no model without the format has its tokens.
bool is_harmony(const tokenizer& tokens) {
    return tokens.special("<|start|>") && tokens.special("<|channel|>") && tokens.special("<|message|>");
}

}  // namespace

chat_format chat_format::of_style(const tokenizer& tokens, chat_template style) {
    chat_format made(tokens, name_of(style));
    made.template_ = style;
    made.end_tokens_ = {end_of_turn(tokens, style)};
    return made;
}

chat_format chat_format::of_source(const tokenizer& tokens, const chat_source& source, const std::string& name) {
    chat_format made(tokens, name);
    made.template_ = jinja::jinja_template(source.text, name);
    made.bos_text_ = source.bos_token;
    made.eos_text_ = source.eos_token;
    made.tool_calls_ = tool_call_format_of(source.text, tokens);
    return made;
}

std::optional<chat_format> chat_format::named(const std::string& name, const tokenizer& tokens,
                                              const chat_source& own) {
    if (name == "none") return {};
    for (const auto& [known, style] : styles) {
        if (name == known) return of_style(tokens, style);
    }
    if (name != "auto") {
        require(std::filesystem::is_regular_file(name), "--template: ", printable(name),
                "; auto, none, llama2, llama3, chatml and the name of a file are allowed");
        return of_source(tokens, {read_file(name), own.bos_token, own.eos_token}, name);
    }
    if (!own.text.empty()) return of_source(tokens, own, "the model's chat template");
    if (const auto style = chat_template_of(tokens)) return of_style(tokens, *style);
    return {};
}

std::vector<int> chat_format::encode(const chat_request& request) const {
    require(request.messages.is_array() && !request.messages.empty(),
            "there are no messages; a chat needs at least one");
    for (std::size_t i = 0; i < request.messages.size(); ++i) {
        const json& message = request.messages[i];
        require(message.is_object() && message.contains("role") && message["role"].is_string(), "message ", i,
                " must be an object with a \"role\"");
    }
    if (const auto* style = std::get_if<chat_template>(&template_))
        return encode_chat(*tokens_, *style, plain_messages(request));
    return encode_by_template(std::get<jinja::jinja_template>(template_), request);
}

chat_output_parser chat_format::output_parser(std::span<const int> prompt) const {
    constexpr std::size_t tokens_of_tags = 16;
    const auto end_of_prompt = [&](std::size_t count) {
        return tokens_->decode(prompt.last(std::min(count, prompt.size())), tokenizer::special_tokens::marked);
    };
    if (!is_harmony(*tokens_)) return {chat_output_format::tags, end_of_prompt(tokens_of_tags)};
    const auto header = std::ranges::find(prompt.rbegin(), prompt.rend(), *tokens_->special("<|start|>"));
    return {chat_output_format::harmony, end_of_prompt(static_cast<std::size_t>(header - prompt.rbegin()) + 1)};
}

shared_constraint chat_format::constrained_answer(shared_constraint what, std::span<const int> prompt,
                                                  shared_trie trie) const {
    constexpr std::size_t last_tokens = 16;
    const std::string end =
        tokens_->decode(prompt.last(std::min(last_tokens, prompt.size())), tokenizer::special_tokens::shown);
    const auto is_behind = [&](const char* late, const char* early) {
        const std::size_t place = end.rfind(late), other = end.rfind(early);
        return place != std::string::npos && (other == std::string::npos || place > other);
    };
    if (is_harmony(*tokens_)) {
        if (is_behind("<|channel|>final<|message|>", "<|end|>")) return what;
        return constrain_after({"<|channel|>final", "<|message|>"}, std::move(what), std::move(trie));
    }
    if (is_behind("<think>", "</think>")) return constrain_after({"</think>"}, std::move(what), std::move(trie));
    const std::optional<int> opener = tokens_->special("<think>");
    if (!opener || is_behind("</think>", "<think>")) return what;
    return constrain_after({"</think>"}, std::move(what), std::move(trie), opener);
}

std::vector<int> chat_format::encode_by_template(const jinja::jinja_template& made, const chat_request& request) const {
    json variables{{"bos_token", bos_text_}, {"eos_token", eos_text_}, {"add_generation_prompt", true}};
    for (const auto& [key, content] : request.variables.items()) variables[key] = content;
    json messages = request.messages;
    if (is_harmony(*tokens_)) rename_for_harmony(messages);
    variables["messages"] = guarded_json(messages, *tokens_);
    if (!request.tools.is_null()) variables["tools"] = guarded_json(request.tools, *tokens_);
    const std::string text = made.render(variables, {.now = jinja::local_time()});
    return tokens_->encode(text, {.add_special_tokens = false, .parse_special = true});
}

}  // namespace imbrex::engine
