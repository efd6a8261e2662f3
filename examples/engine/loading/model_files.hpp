// A model from disk, whatever the files are: a Hugging Face folder, a GGUF file or a checkpoint of llama2.c. The weights have
// Hugging Face's names in each case, and their shapes are those that the configuration asks for.
#pragma once

#include <filesystem>
#include <string>

#include "engine/loading/model_config.hpp"
#include "engine/loading/weights.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct model_files {
    std::string name;
    model_config config;
    weight_set weights;
    tokenizer tokens;
};

model_files open_model(const std::filesystem::path& path);

// What Hugging Face calls a GGUF file's tensor. A name that is not known stays as it is.
std::string name_of_gguf_tensor(const std::string& name);

// What open_model does with a GGUF file's bytes.
model_files read_gguf_model(std::span<const std::byte> bytes, const std::string& name);

}  // namespace imbrex::engine
