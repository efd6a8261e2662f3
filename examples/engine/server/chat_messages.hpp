// The conversation of a chat request: messages, tools and template variables, checked and in the form that chat templates
// take.
#pragma once

#include <vector>

#include "engine/server/api_context.hpp"
#include "engine/server/tool_choice.hpp"

namespace imbrex::engine::server {

struct chat_prompt {
    std::vector<int> tokens{};
    tool_choice tools{};

    bool has_tools() const { return !tools.shown.is_null(); }
};

// Reads "messages", the fields of tools, "reasoning_effort" and "chat_template_kwargs". Without a
// chat format the contents of the messages are one text, which the model continues.
chat_prompt read_chat_prompt(const api_context& context, request_fields& fields);

// The options of a text that answers this prompt: where it ends, and as calls of tools if they are required.
void prepare_answer(const api_context& context, const chat_prompt& prompt, text_options& options);

// The text of a message's content: a string, or an array of text parts, joined. `path` names it in errors.
std::string content_text(const json& content, const std::string& path);

}  // namespace imbrex::engine::server
