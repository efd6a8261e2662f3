// Opens a model from disk: a Hugging Face folder, a GGUF file or a llama2.c checkpoint. Weights have Hugging Face names
// and the shapes of the configuration in all cases.
#pragma once

#include <filesystem>
#include <string>

#include "engine/loading/chat_source.hpp"
#include "engine/loading/expert_weights.hpp"
#include "engine/loading/gguf.hpp"
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

// Without contents, converted experts have types and shapes alone: to describe a model, not to run it.
model_files open_model(const std::filesystem::path& path, weight_contents contents = weight_contents::given);

// The weights of a Hugging Face folder: model.gguf with Hugging Face names, as `imbrex quantize` writes it, or
// safetensors. Quantised ones (checkpoint_quantisation.hpp) are converted.
weight_set open_folder_weights(const std::filesystem::path& path, weight_contents contents = weight_contents::given);

// The tokenizer alone, of a folder or a GGUF file whatever its weights are.
struct tokenizer_files {
    tokenizer tokens;
    chat_source chat{};
};
tokenizer_files open_tokenizer(const std::filesystem::path& path);

// The Hugging Face name of a GGUF tensor. Unknown names are returned unchanged.
std::string name_of_gguf_tensor(const std::string& name, model_family family = model_family::llama);

// open_model for a GGUF file, and for the bytes of one that is not split.
model_files gguf_model(const gguf_file& file);
model_files read_gguf_model(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
