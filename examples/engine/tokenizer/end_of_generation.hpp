// Tokens that end a generation, by their names. Files often name one of several in their metadata: a chat model of the
// Qwen family ends a turn with <|im_end|> and a text with <|endoftext|>.
#pragma once

#include <vector>

#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

// Those that the file names, then those with known names. In harmony, the format of GPT-OSS, <|end|> ends a message, and
// another may follow: it is none of them, even if the file says so.
std::vector<int> end_of_generation_tokens(const tokenizer& tokens, std::vector<int> in_file = {});

}  // namespace imbrex::engine
