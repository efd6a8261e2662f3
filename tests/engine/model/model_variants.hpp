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
             config.rope.scaling = rope_scaling::freq_factors;
             for (int pair = 0; pair < config.head_dim / 2; ++pair)
                 config.rope.freq_factors.push_back(1 + 0.5f * static_cast<float>(pair));
             config.rope.style = rope_style::interleaved;
         }},
        {"qwen2", model_family::qwen2, [](model_config&) {}},
        {"qwen2, untied, one key head, a window", model_family::qwen2,
         [](model_config& config) {
             config.tie_word_embeddings = false;
             config.kv_heads = 1;
             config.sliding_window = 11;
             config.first_sliding_window_layer = 1;
         }},
        {"qwen3", model_family::qwen3, [](model_config&) {}},
    };
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
