// The model configuration: sizes, and each way in which model families differ, as a field. The model reads the fields
// and never the family; families.cpp says which family sets which. Unknown families, and unsupported settings that
// would change the result, throw.
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

// In the order of the table in families.cpp.
enum class model_family {
    llama,
    qwen2,
    qwen3,
    mistral,
    ministral,
    smollm3,
    gemma,
    gemma2,
    gemma3,
    phi3,
    granite,
    olmo2,
    olmo3,
    stablelm,
    qwen3_moe,
    mixtral,
    gpt_oss
};

const char* name_of(model_family family);

enum class norm_kind { rms, layer };                 // RMSNorm; LayerNorm with weight and bias
enum class norm_place { before, after, around };     // of attention and MLP
enum class qk_norm_rows { none, head, projection };  // RMSNorm of Q and K before RoPE: of what
enum class gate_activation { silu, gelu_tanh };      // of the gated MLP
enum class rope_scaling { none, linear, dynamic, yarn, llama3, longrope };

struct rope_config {
    double theta = 10000;
    int rotary_dim = 0;  // columns that are rotated, the first of each head; 0: all
    // half_split in Hugging Face files; interleaved in llama2.c files and in GGUF files of the Llama family, which
    // permute the rows of Q and K. Weights are not permuted on load.
    rope_style style = rope_style::half_split;
    rope_scaling scaling = rope_scaling::none;
    double factor = 1;
    double low_freq_factor = 1;                   // llama3
    double high_freq_factor = 4;                  // llama3
    double beta_fast = 32;                        // yarn
    double beta_slow = 1;                         // yarn
    bool truncate = true;                         // yarn
    std::optional<double> attention_factor = {};  // yarn, longrope; default: by their formulas
    std::optional<double> mscale = {};            // yarn
    std::optional<double> mscale_all_dim = {};    // yarn
    int original_max_position_embeddings = 0;     // dynamic, yarn, llama3, longrope
    std::vector<float> freq_factors = {};         // divisors, one per pair; longrope: of short contexts
    std::vector<float> long_freq_factors = {};    // longrope: of contexts longer than the original one
};

// What may differ from layer to layer.
enum class layer_rope { global, local, none };  // model_config::rope; local_rope; positions are not encoded (NoPE)
struct layer_attention {
    int window = 0;  // visible tokens, including the current one; 0: all
    layer_rope rope = layer_rope::global;
};

// Experts instead of the gated MLP, in every layer: a router chooses `per_token` of them for each token.
struct expert_config {
    int count = 0;  // 0: a gated MLP
    int per_token = 0;
    bool weights_of_chosen = true;  // a token's weights are the softmax over the chosen experts; false: over all
    bool bias = false;              // of the router and of the experts
    double swiglu_limit = 0;        // clamped SwiGLU, min(gate, limit) * sigmoid(1.702 gate) * (up + 1); 0: plain

    bool given() const { return count > 0; }
};

struct model_config {
    model_family family = model_family::llama;
    int layers = 0;
    int hidden_size = 0;
    int intermediate_size = 0;  // of an expert, if there are experts
    int heads = 0;
    int kv_heads = 0;  // GQA: fewer than heads
    int head_dim = 0;
    int vocab_size = 0;
    int context = 0;
    double norm_eps = 1e-5;
    bool tie_word_embeddings = false;  // the LM head shares the embedding table
    bool qkv_bias = false;             // of the Q, K and V projections
    bool output_bias = false;          // of the attention's output projection
    norm_kind norm = norm_kind::rms;
    norm_place norms = norm_place::before;
    bool norm_weights_from_one = false;  // norm weights are stored as differences from 1
    qk_norm_rows qk_norm = qk_norm_rows::none;
    gate_activation activation = gate_activation::silu;
    expert_config experts = {};
    bool attention_sinks = false;                // a logit per head in the softmax denominator
    bool parallel_residual = false;              // attention and MLP both read the layer's input, by the same norm
    double embedding_scale = 1;                  // factor of the embedding
    double residual_scale = 1;                   // factor of what attention and MLP add
    double logits_scale = 1;                     // factor of the logits
    double logits_softcap = 0;                   // cap * tanh(logit / cap); 0: none
    double attention_softcap = 0;                // the same for attention scores; 0: none
    std::optional<double> attention_scale = {};  // of Q K^T; 1 / sqrt(head_dim) by default
    rope_config rope = {};
    std::optional<rope_config> local_rope = {};          // of layers with layer_rope::local
    std::vector<layer_attention> attention_layers = {};  // one per layer; empty: full attention with `rope` in all
    std::optional<int> bos_token = {};
    std::vector<int> eos_tokens = {};  // each of them ends a sequence

    layer_attention attention_of(int layer) const {
        return attention_layers.empty() ? layer_attention{} : attention_layers[static_cast<std::size_t>(layer)];
    }
    // Layers for which has_window(layer) holds see `window` tokens.
    template <class HasWindow>
    void set_windows(int window, const HasWindow& has_window) {
        attention_layers.resize(static_cast<std::size_t>(layers));
        for (int i = 0; i < layers; ++i)
            attention_layers[static_cast<std::size_t>(i)].window = has_window(i) ? window : 0;
    }
    int rotary_dim(const rope_config& of) const { return of.rotary_dim == 0 ? head_dim : of.rotary_dim; }
};

// From config.json. generation_config.json may add EOS tokens; it may be empty.
model_config read_config(std::span<const std::byte> config, std::span<const std::byte> generation,
                         const std::string& name);

// From GGUF metadata; the weights already have Hugging Face names.
model_config gguf_config(const gguf_metadata& metadata, const weight_set& weights);

// Throws if sizes are out of range or inconsistent. The readers call it.
void check_sizes(const model_config& config, const std::string& name);

// Names of the norms of a layer, without ".weight"; empty if there is none.
struct layer_norm_names {
    std::string before_attention, after_attention, before_mlp, after_mlp;
};
layer_norm_names norm_names(const model_config& config);

// All weights of the model with Hugging Face names and shapes.
struct expected_weight {
    std::string name;
    std::vector<std::int64_t> shape;
};
std::vector<expected_weight> expected_weights(const model_config& config);

// Divides projections that a file stores as one ("qkv_proj", "gate_up_proj") into the expected ones, without a copy.
weight_set with_separate_projections(const model_config& config, const weight_set& weights, const std::string& name);

// Throws if a weight is missing or has another shape. Additional weights are allowed.
void check_weights(const model_config& config, const weight_set& weights, const std::string& name);

// inv_freq: radians per position of each RoPE pair, rotary_dim / 2 values. With dynamic and longrope they depend on the
// context, the maximum tokens of a sequence; 0: the model's.
std::vector<double> rope_inv_freq(const model_config& config, const rope_config& rope, int context = 0);

// Factor of the rotated columns of Q and K.
double rope_attention_factor(const model_config& config, const rope_config& rope);

}  // namespace imbrex::engine
