// Chat templates of Llama 2, Llama 3 and ChatML, written out as code; the special tokens of a vocabulary select one.
// Special tokens of the template are inserted as ids and messages are encoded as plain text, so a message cannot end
// its turn or begin another.
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

// Nothing if the vocabulary has the special tokens of no template.
std::optional<chat_template> chat_template_of(const tokenizer& tokens);

// The conversation up to the start of the assistant's next turn.
std::vector<int> encode_chat(const tokenizer& tokens, chat_template style, std::span<const chat_message> messages);

// The token that ends the assistant's turn.
int end_of_turn(const tokenizer& tokens, chat_template style);

}  // namespace imbrex::engine
