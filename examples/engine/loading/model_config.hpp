// The model configuration: sizes, GQA, RoPE, special tokens; read from Hugging Face's config.json or from GGUF
// metadata. One struct covers Llama (1 to 3.x), Qwen2, Qwen2.5 and Qwen3. Unknown architectures, and unsupported
// settings that would change the result, throw.
#pragma once

#include <cstdint>
#include <imbrex/kernels/rope/style.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/loading/gguf.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine {

enum class model_family { llama, qwen2, qwen3 };

const char* name_of(model_family family);

enum class rope_scaling {
    none,
    linear,        // all frequencies divided by the factor
    llama3,        // low frequencies divided by the factor, high ones kept, a ramp between
    freq_factors,  // each divided by its own factor from the file
};

struct rope_config {
    double theta = 10000;
    // half_split in Hugging Face files; interleaved in llama2.c files and in GGUF files of the Llama family, which
    // permute the rows of Q and K. Weights are not permuted on load.
    rope_style style = rope_style::half_split;
    rope_scaling scaling = rope_scaling::none;
    double factor = 1;
    double low_freq_factor = 1;                // llama3
    double high_freq_factor = 4;               // llama3
    int original_max_position_embeddings = 0;  // llama3
    std::vector<float> freq_factors;           // one per pair
};

struct model_config {
    model_family family = model_family::llama;
    int layers = 0;
    int hidden_size = 0;
    int intermediate_size = 0;
    int heads = 0;
    int kv_heads = 0;  // GQA: fewer than heads
    int head_dim = 0;
    int vocab_size = 0;
    int context = 0;
    double rms_norm_eps = 1e-5;
    bool tie_word_embeddings = false;  // the LM head shares the embedding table
    bool qkv_bias = false;             // Qwen2: bias of the Q, K and V projections
    bool qk_norm = false;              // Qwen3: RMSNorm of each head of Q and K, before RoPE
    rope_config rope;
    int sliding_window = 0;              // visible tokens, including the current one; 0: all
    int first_sliding_window_layer = 0;  // layers before it have full attention
    std::optional<int> bos_token;
    std::vector<int> eos_tokens;  // each of them ends a sequence
};

// From config.json. generation_config.json may add EOS tokens; it may be empty.
model_config read_config(std::span<const std::byte> config, std::span<const std::byte> generation,
                         const std::string& name);

// From GGUF metadata; the weights already have Hugging Face names.
model_config gguf_config(const gguf_metadata& metadata, const weight_set& weights);

// Throws if sizes are out of range or inconsistent. The readers call it.
void check_sizes(const model_config& config, const std::string& name);

// All weights of the model with Hugging Face names and shapes.
struct expected_weight {
    std::string name;
    std::vector<std::int64_t> shape;
};
std::vector<expected_weight> expected_weights(const model_config& config);

// Throws if a weight is missing or has another shape. Additional weights are allowed.
void check_weights(const model_config& config, const weight_set& weights, const std::string& name);

// inv_freq: radians per position of each RoPE pair, head_dim / 2 values.
std::vector<double> rope_inv_freq(const model_config& config);

}  // namespace imbrex::engine
