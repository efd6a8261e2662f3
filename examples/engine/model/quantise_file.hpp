// Converts the weights of a model once and writes them to a file that the engine uses as it lies on the disk.
#pragma once

#include <filesystem>

#include "engine/loading/weight_type.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/weight_format.hpp"

namespace imbrex::engine {

// The type of matrices in the written file: int8 becomes q8_0, int4 q4_0. Throws for a format that GGUF does not have.
weight_type file_type_of(weight_format format);

// A .gguf file (or all files of a split one) becomes a .gguf file with the same keys; a Hugging Face folder becomes a
// folder with its configuration and tokenizer, and model.gguf instead of safetensors. Matrices get the type; with q4_0
// the embedding and the LM head get q8_0. Vectors, and matrices whose rows are not whole blocks, stay as they are. The
// output must not exist; it is complete or not there at all. `mixed` chooses the types (weight_mixture.hpp).
void quantise_file(const std::filesystem::path& from, const std::filesystem::path& to, weight_format format,
                   double bits_per_weight = usual_bits_per_weight, const loading_progress& progress = {});

}  // namespace imbrex::engine
