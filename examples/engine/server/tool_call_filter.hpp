// Finds the calls of tools in the content of an answer. Two formats are known, by which templates ask for them:
//
//     Hermes   <tool_call>{"name": "f", "arguments": {...}}</tool_call>      Qwen, SmolLM3, Granite, ...
//     JSON     {"name": "f", "parameters": {...}}                            Llama 3: the whole content
//
// The calls of Mistral and GPT-OSS are found by chat_output_parser. Text that is no call stays content; white space around calls is
// dropped.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/chat/chat_output.hpp"
#include "engine/server/generation_service.hpp"

namespace imbrex::engine::server {

class tool_call_filter {
  public:
    // The parts that are new with this content.
    chat_output push(std::string_view content);
    // At the end: what was held back.
    chat_output finish();

  private:
    enum class state { beginning, text, call, after_call, json };

    bool advance(chat_output& found);

    state state_ = state::beginning;
    std::string held_;
};

// The new parts of an answer: by its parser, if there is one, and then by the filter.
chat_output divided(std::optional<chat_output_parser>& parser, std::optional<tool_call_filter>& calls,
                    const generation_event& event);

}  // namespace imbrex::engine::server
