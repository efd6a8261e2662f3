// Conversations as the families were trained on them. Their templates are few, so they are written out here; which one a model
// uses shows in the special tokens of its vocabulary. A template's special tokens are put in as ids, and what people wrote is
// encoded as plain text: no message can end its own turn or begin another's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

enum class chat_template {
    llama2,  // <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s>
    llama3,  // <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\ntext<|eot_id|>...
    chatml,  // <|im_start|>user\ntext<|im_end|>\n...
};

struct chat_message {
    std::string role;  // system (only the first), user or assistant
    std::string text;
};

// Nothing where the vocabulary has the special tokens of none of them.
std::optional<chat_template> chat_template_of(const tokenizer& tokens);

// The conversation so far, up to where the assistant's next turn begins.
std::vector<int> encode_chat(const tokenizer& tokens, chat_template style, std::span<const chat_message> messages);

// The token with which the assistant ends its turn.
int end_of_turn(const tokenizer& tokens, chat_template style);

}  // namespace imbrex::engine
