// Divides what a model writes in a chat, as it arrives, into reasoning, content and tool calls. Two formats are known:
//
//     harmony   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>content<|return|>
//               <|channel|>commentary to=functions.name <|constrain|>json<|message|>arguments<|call|>
//     tags      <think>reasoning</think>content                   the tags at the beginning of the answer only
//               content[TOOL_CALLS]calls                          if that is a special token (tool_calls.hpp)
//
// The text has marks around the names of special tokens (tokenizer::special_tokens::marked), so that a name which the model
// spells in ordinary tokens is text. Special tokens that are no part of a format are dropped. The result does not depend
// on how the text is split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/tool_calls.hpp"

namespace imbrex::engine {

struct chat_output {
    std::string reasoning{}, content{};
    std::vector<tool_call> tool_calls{};

    void append(const chat_output& more);
    bool operator==(const chat_output&) const = default;
};

enum class chat_output_format { tags, harmony };

class chat_output_parser {
  public:
    // `prompt` is the end of the prompt, with marks, in which the template may have begun the answer: "<think>", or the header
    // of a message.
    chat_output_parser(chat_output_format format, std::string_view prompt);
    chat_output_parser(chat_output_parser&&) noexcept;
    chat_output_parser& operator=(chat_output_parser&&) noexcept;
    ~chat_output_parser();

    // The parts of the answer that are new with this text.
    chat_output push(std::string_view text);
    // At the end, wherever the text stops: what was held back.
    chat_output finish();

    class grammar;

  private:
    std::string held_;  // the beginning of a special token's name
    std::unique_ptr<grammar> grammar_;
};

}  // namespace imbrex::engine
