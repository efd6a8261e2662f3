// What a model is, apart from its weights: the sizes, the RoPE embedding, the special tokens. It is read from Hugging Face's
// config.json or from a GGUF file's metadata; one struct describes Llama (1 to 3.x), Qwen2, Qwen2.5 and Qwen3. An architecture
// that is not known is refused by its name, and so is a setting that would change the result.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loading/gguf.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

enum class model_family { llama, qwen2, qwen3 };

const char* name_of(model_family family);

// Which two elements of a head a rotation turns: i and i + head_dim / 2 (Hugging Face's files), or 2 i and 2 i + 1 (llama2.c, and
// GGUF files of the Llama family, whose query and key rows are permuted for it). The weights are used as they are.
enum class rope_style { half_split, interleaved };

enum class rope_scaling {
    none,
    linear,        // all frequencies divided by the factor
    llama3,        // the low ones divided by the factor, the high ones kept, a ramp between
    freq_factors,  // each divided by a number of its own, which the file gives
};

struct rope_config {
    double theta = 10000;
    rope_style style = rope_style::half_split;
    rope_scaling scaling = rope_scaling::none;
    double factor = 1;
    double low_freq_factor = 1;                // llama3
    double high_freq_factor = 4;               // llama3
    int original_max_position_embeddings = 0;  // llama3
    std::vector<float> freq_factors;           // one for each pair
};

struct model_config {
    model_family family = model_family::llama;
    int layers = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    int heads = 0;
    int kv_heads = 0;  // of keys and of values
    int head_dim = 0;
    int vocab_size = 0;
    int context = 0;
    double rms_norm_eps = 1e-5;
    bool tie_word_embeddings = false;  // the embedding is the output projection too
    bool qkv_bias = false;             // on these three projections; no others have any
    bool qk_norm = false;              // RMS norm of each head's query and key, before the rotation
    rope_config rope;
    int sliding_window = 0;              // tokens that a layer sees, itself included; 0: all
    int first_sliding_window_layer = 0;  // layers before it see all
    std::optional<int> bos_token;
    std::vector<int> eos_tokens;  // a text ends with any of them
};

// From config.json. generation_config.json may name more end tokens; it may be empty.
model_config read_config(std::span<const std::byte> config, std::span<const std::byte> generation,
                         const std::string& name);

// From a GGUF file, whose weights have Hugging Face's names already.
model_config gguf_config(const gguf_metadata& metadata, const weight_set& weights);

// Refuses sizes that do not fit together. The readers call it.
void check_sizes(const model_config& config, const std::string& name);

// All weights that the model has, with their shapes, under Hugging Face's names.
struct expected_weight {
    std::string name;
    std::vector<std::int64_t> shape;
};
std::vector<expected_weight> expected_weights(const model_config& config);

// Refuses a weight that is missing or has another shape. Weights that the model does not use may be there.
void check_weights(const model_config& config, const weight_set& weights, const std::string& name);

// Radians that each pair of a head's elements turns by from one position to the next: head_dim / 2 of them.
std::vector<double> rope_inv_freq(const model_config& config);

}  // namespace imbrex::engine
