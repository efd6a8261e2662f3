// Small random models of every family and RoPE variant, for comparisons of a runner with the float64 reference.
#pragma once

#include <functional>
#include <vector>

#include "engine/model/random_weights.hpp"

namespace imbrex::engine::test {

struct variant {
    const char* name;
    model_family family;
    std::function<void(model_config&)> change;
};

inline const std::vector<variant>& variants() {
    static const std::vector<variant> all{
        {"llama", model_family::llama, [](model_config&) {}},
        {"llama, tied, as many key heads", model_family::llama,
         [](model_config& config) {
             config.tie_word_embeddings = true;
             config.kv_heads = config.heads;
         }},
        {"llama, neighbours turn", model_family::llama,
         [](model_config& config) { config.rope.style = rope_style::interleaved; }},
        {"llama, linear", model_family::llama,
         [](model_config& config) {
             config.rope.scaling = rope_scaling::linear;
             config.rope.factor = 4;
         }},
        {"llama 3", model_family::llama,
         [](model_config& config) {
             config.rope.scaling = rope_scaling::llama3;
             config.rope.factor = 8;
             config.rope.original_max_position_embeddings = 64;
         }},
        {"llama, divisors", model_family::llama,
         [](model_config& config) {
             for (int pair = 0; pair < config.head_dim / 2; ++pair)
                 config.rope.freq_factors.push_back(1 + 0.5f * static_cast<float>(pair));
             config.rope.style = rope_style::interleaved;
         }},
        {"qwen2", model_family::qwen2, [](model_config&) {}},
        {"qwen2, untied, one key head, a window", model_family::qwen2,
         [](model_config& config) {
             config.tie_word_embeddings = false;
             config.kv_heads = 1;
             config.set_windows(11, [](int layer) { return layer >= 1; });
         }},
        {"qwen3", model_family::qwen3, [](model_config&) {}},
        {"yarn, part of the columns, no positions in a layer", model_family::llama,
         [](model_config& config) {
             config.rope.scaling = rope_scaling::yarn;
             config.rope.factor = 4;
             config.rope.original_max_position_embeddings = 64;
             config.rope.rotary_dim = config.head_dim / 2;
             config.set_windows(0, [](int) { return false; });
             config.attention_layers[1].rope = layer_rope::none;
         }},
        {"longrope", model_family::llama,
         [](model_config& config) {
             config.rope.scaling = rope_scaling::longrope;
             config.rope.factor = 8;
             config.rope.original_max_position_embeddings = 32;
             for (int pair = 0; pair < config.head_dim / 2; ++pair) {
                 config.rope.freq_factors.push_back(1);
                 config.rope.long_freq_factors.push_back(1 + 0.5f * static_cast<float>(pair));
             }
         }},
        {"dynamic", model_family::llama,
         [](model_config& config) {
             config.rope.scaling = rope_scaling::dynamic;
             config.rope.factor = 4;
             config.rope.original_max_position_embeddings = config.context / 4;
         }},
        {"norms around, two rotations, caps, GELU", model_family::llama,
         [](model_config& config) {
             config.norms = norm_place::around;
             config.norm_weights_from_one = true;
             config.qk_norm = qk_norm_rows::head;
             config.activation = gate_activation::gelu_tanh;
             config.embedding_scale = 8.5;
             config.attention_scale = 0.125;
             config.attention_softcap = 5;
             config.logits_softcap = 3;
             config.local_rope.emplace().theta = 100;
             config.set_windows(11, [](int layer) { return layer != 1; });
             for (layer_attention& one : config.attention_layers)
                 one.rope = one.window > 0 ? layer_rope::local : layer_rope::global;
         }},
        {"norms after, of the whole Q and K", model_family::llama,
         [](model_config& config) {
             config.norms = norm_place::after;
             config.qk_norm = qk_norm_rows::projection;
         }},
        {"factors", model_family::llama,
         [](model_config& config) {
             config.embedding_scale = 12;
             config.residual_scale = 0.25;
             config.attention_scale = 0.1;
             config.logits_scale = 0.125;
             config.output_bias = config.qkv_bias = true;
         }},
        {"LayerNorm", model_family::llama, [](model_config& config) { config.norm = norm_kind::layer; }},
        {"LayerNorm, parallel", model_family::llama,
         [](model_config& config) {
             config.norm = norm_kind::layer;
             config.parallel_residual = true;
             config.residual_scale = 0.5;
         }},
    };
    return all;
}

// Mixtures of experts.
inline const std::vector<variant>& expert_variants() {
    static const std::vector<variant> all{
        {"experts", model_family::mixtral, [](model_config& config) { config.experts = {.count = 4, .per_token = 2}; }},
        {"experts, softmax over all", model_family::qwen3_moe,
         [](model_config& config) {
             config.experts = {.count = 9, .per_token = 3, .weights_of_chosen = false};
             config.residual_scale = 0.5;
         }},
        {"experts with biases, clamped SwiGLU, sinks, a window", model_family::gpt_oss,
         [](model_config& config) {
             config.experts = {.count = 6, .per_token = 6, .bias = true, .swiglu_limit = 0.75};
             config.qkv_bias = config.output_bias = config.attention_sinks = true;
             config.set_windows(11, [](int layer) { return layer % 2 == 0; });
         }},
    };
    return all;
}

inline std::vector<variant> all_variants() {
    std::vector<variant> all = variants();
    all.insert(all.end(), expert_variants().begin(), expert_variants().end());
    return all;
}

// With this head_dim; 0: that of small_config.
inline model_config config_of(const variant& which, int head_dim = 0) {
    model_config config = small_config(which.family);
    if (head_dim > 0) config.head_dim = head_dim;
    which.change(config);
    return config;
}

}  // namespace imbrex::engine::test
