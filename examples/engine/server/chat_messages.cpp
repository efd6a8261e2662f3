#include "engine/server/chat_messages.hpp"

#include <imbrex/core/error.hpp>

#include "engine/chat/bounded_json.hpp"
#include "engine/server/sampling_fields.hpp"

namespace imbrex::engine::server {

namespace {

// Templates take the arguments of a call as an object.
json read_tool_calls(const json& calls, const std::string& path) {
    json result = json::array();
    if (!calls.is_array()) throw api_error(400, path + ": " + shown(calls) + "; an array of calls is allowed", path);
    for (const json& call : calls) {
        const std::string here = str_cat(path, "[", result.size(), "]");
        const bool is_call = call.is_object() && call.contains("function") && call["function"].is_object() &&
                             call["function"].contains("name") && call["function"]["name"].is_string();
        if (!is_call)
            throw api_error(
                400, here + ": " + shown(call) + R"(; {"function": {"name": "...", "arguments": "..."}} is allowed)",
                here);
        json one = call;
        json& function = one["function"];
        if (function.contains("arguments") && function["arguments"].is_string()) {
            if (auto arguments = parse_bounded_json(function["arguments"].get_ref<const std::string&>()))
                function["arguments"] = std::move(*arguments);
        }
        result.push_back(std::move(one));
    }
    return result;
}

json read_message(const json& message, const std::string& path) {
    if (!message.is_object()) throw api_error(400, path + ": " + shown(message) + "; an object is allowed", path);
    request_fields fields(message, path + ".");
    json result;
    result["role"] = fields.required_text("role");
    fields.choice("role", {"system", "developer", "user", "assistant", "tool"});
    if (result["role"] == "developer") result["role"] = "system";
    const json* const content = fields.find("content");
    if (content != nullptr) result["content"] = content_text(*content, fields.path_of("content"));
    const json* const calls = fields.find("tool_calls");
    if (calls != nullptr && !calls->empty())
        result["tool_calls"] = read_tool_calls(*calls, fields.path_of("tool_calls"));
    if (content == nullptr) {
        if (!result.contains("tool_calls")) fields.fail("content", "a text is needed");
        result["content"] = "";
    }
    for (const char* const name : {"name", "tool_call_id", "reasoning_content"}) {
        if (const auto text = fields.text(name)) result[name] = *text;
    }
    fields.ignore({"refusal", "audio", "annotations"});  // a client sends back the message that it got
    fields.refuse("function_call", nullptr, "\"tool_calls\" replaces it");
    fields.refuse_unknown();
    return result;
}

json read_messages(request_fields& fields) {
    const json* const messages = fields.array("messages");
    if (messages == nullptr || messages->empty())
        fields.fail("messages", "an array with at least one message is needed");
    json result = json::array();
    for (const json& each : *messages)
        result.push_back(read_message(each, str_cat(fields.path_of("messages"), "[", result.size(), "]")));
    return result;
}

// Without a chat format: a text to continue.
std::vector<int> continuation(const api_context& context, const json& messages) {
    std::string text;
    for (const json& each : messages) {
        const auto& content = each["content"].get_ref<const std::string&>();
        const bool needs_space =
            !text.empty() && !content.empty() && text.back() != ' ' && text.back() != '\n' && content[0] != ' ';
        text += (needs_space ? " " : "") + content;
    }
    return context.model.encode_prompt(text);
}

}  // namespace

std::string content_text(const json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array())
        throw api_error(400, path + ": " + shown(content) + "; a string or an array of parts is allowed", path);
    std::string text;
    for (std::size_t i = 0; i < content.size(); ++i) {
        const json& part = content[i];
        const std::string here = str_cat(path, "[", i, "]");
        if (!part.is_object()) throw api_error(400, here + ": " + shown(part) + "; an object is allowed", here);
        request_fields inner(part, here + ".");
        inner.required_text("type");
        inner.choice("type", {"text", "input_text", "output_text"});
        text += inner.required_text("text");
    }
    return text;
}

void prepare_answer(const api_context& context, const chat_prompt& prompt, text_options& options) {
    options.position = incremental_detokenizer::text_position::continuation;
    if (context.format) {
        const std::vector<int>& ends = context.format->end_tokens();
        options.eos_tokens.insert(options.eos_tokens.end(), ends.begin(), ends.end());
        options.special = tokenizer::special_tokens::marked;
        options.position = incremental_detokenizer::text_position::beginning;
    }
    options.sampling.constraint = constraint_of_tools(context, prompt.tools.rules, prompt.tokens);
    limit_length(context, prompt.tokens.size(), options);
}

chat_prompt read_chat_prompt(const api_context& context, request_fields& fields) {
    chat_prompt result;
    result.tools = read_tools(fields);
    chat_request request{.messages = read_messages(fields),
                         .tools = result.tools.shown,
                         .variables = context.settings.template_variables};
    if (const auto effort = fields.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high"}))
        request.variables["reasoning_effort"] = *effort;
    if (const json* const variables = fields.object("chat_template_kwargs")) request.variables.update(*variables);
    if (!context.format) {
        if (result.has_tools()) fields.fail("tools", "this model has no chat template, and so no format of tools");
        result.tokens = continuation(context, request.messages);
    } else {
        try {
            result.tokens = context.format->encode(request);
        } catch (const invalid_argument& failure) {  // the template refuses the conversation
            throw api_error(400, str_cat("messages: ", failure.what()), "messages");
        }
    }
    check_prompt(context, "messages", result.tokens);
    return result;
}

}  // namespace imbrex::engine::server
