// The chat template of a model, as its files have it: a text in Jinja (chat/), and the texts of two special tokens that
// templates may use.
#pragma once

#include <filesystem>
#include <string>

#include "engine/loading/gguf.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct chat_source {
    std::string text{};  // empty: the model has none
    std::string bos_token{}, eos_token{};
};

// Of a Hugging Face folder: chat_template.jinja, or tokenizer_config.json, which may have several; "default" is used.
chat_source read_chat_source(const std::filesystem::path& folder);

// Of a GGUF file: tokenizer.chat_template.
chat_source gguf_chat_source(const gguf_metadata& metadata, const tokenizer& tokens);

}  // namespace imbrex::engine
