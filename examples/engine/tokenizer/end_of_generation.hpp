// Tokens that end a generation, by their names. Files often name one of several in their metadata: a chat model of the
// Qwen family ends a turn with <|im_end|> and a text with <|endoftext|>.
#pragma once

#include <vector>

#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

std::vector<int> end_of_generation_tokens(const tokenizer& tokens);

}  // namespace imbrex::engine
