// Opens a model from disk: a Hugging Face folder, a GGUF file or a llama2.c checkpoint. Weights have Hugging Face names
// and the shapes of the configuration in all cases.
#pragma once

#include <filesystem>
#include <string>

#include "engine/loading/chat_source.hpp"
#include "engine/loading/model_config.hpp"
#include "engine/loading/weights.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct model_files {
    std::string name;
    model_config config;
    weight_set weights;
    tokenizer tokens;
    chat_source chat{};
};

model_files open_model(const std::filesystem::path& path);

// The tokenizer alone, of a folder or a GGUF file whatever its weights are.
struct tokenizer_files {
    tokenizer tokens;
    chat_source chat{};
};
tokenizer_files open_tokenizer(const std::filesystem::path& path);

// The Hugging Face name of a GGUF tensor. Unknown names are returned unchanged.
std::string name_of_gguf_tensor(const std::string& name);

// open_model for the bytes of a GGUF file.
model_files read_gguf_model(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
