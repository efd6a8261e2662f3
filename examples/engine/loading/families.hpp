// The table of model families: one entry per family says how its files are named and which fields of the configuration
// it sets. docs/engine.md, "Add a family", explains the entries.
#pragma once

#include <imbrex/kernels/rope/style.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/loading/model_settings.hpp"

namespace imbrex::engine {

struct family_description {
    model_family family;
    const char* model_type;    // in config.json, and the name of the family
    const char* architecture;  // in GGUF metadata; null: GGUF files of this family name another one
    // In GGUF files: interleaved if the converter permutes the rows of Q and K.
    rope_style gguf_style = rope_style::half_split;
    // Sets what differs from Llama. The sizes are already there; rope scaling and layer types are read afterwards.
    void (*describe)(const model_settings& from, model_config& config) = nullptr;
    // Prefixes of GGUF tensors and of Hugging Face tensors within a layer that differ from Llama's.
    std::vector<std::pair<std::string_view, std::string_view>> gguf_tensors = {};
    bool ties_embeddings = false;  // if config.json does not say
};

std::span<const family_description> all_families();

// By the name in config.json or in GGUF metadata. Throws for an unknown one, with `file` in the message.
const family_description& family_of_model_type(const std::string& model_type, const std::string& file);
const family_description& family_of_architecture(const std::string& architecture, const std::string& file);
const family_description& description_of(model_family family);

// The settings that all families have: sizes, biases, activation, then the family's own. Layer types, if the file names
// them, replace the family's.
void read_family(const model_settings& from, const family_description& family, model_config& config);

// After RoPE is read: layers with a window use the local RoPE, if there is one. A theta of 0 becomes that of the other.
void assign_local_rope(model_config& config);

}  // namespace imbrex::engine
