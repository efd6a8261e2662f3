// Small random models of every family with every rotation, for tests that compare a runner with the float64 model.
#pragma once

#include <functional>
#include <vector>

#include "random_weights.hpp"

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
             config.tied = true;
             config.key_heads = config.heads;
         }},
        {"llama, neighbours turn", model_family::llama,
         [](model_config& config) { config.rotary.style = rotary_style::interleaved; }},
        {"llama, linear", model_family::llama,
         [](model_config& config) {
             config.rotary.scaling = rotary_scaling::linear;
             config.rotary.factor = 4;
         }},
        {"llama 3", model_family::llama,
         [](model_config& config) {
             config.rotary.scaling = rotary_scaling::llama3;
             config.rotary.factor = 8;
             config.rotary.original_context = 64;
         }},
        {"llama, divisors", model_family::llama,
         [](model_config& config) {
             config.rotary.scaling = rotary_scaling::divisors;
             for (int pair = 0; pair < config.head_depth / 2; ++pair)
                 config.rotary.divisors.push_back(1 + 0.5f * static_cast<float>(pair));
             config.rotary.style = rotary_style::interleaved;
         }},
        {"qwen2", model_family::qwen2, [](model_config&) {}},
        {"qwen2, untied, one key head, a window", model_family::qwen2,
         [](model_config& config) {
             config.tied = false;
             config.key_heads = 1;
             config.window = 11;
             config.first_window_layer = 1;
         }},
        {"qwen3", model_family::qwen3, [](model_config&) {}},
    };
    return all;
}

// With heads of this depth; 0: of the one that small_config gives them.
inline model_config config_of(const variant& which, int head_depth = 0) {
    model_config config = small_config(which.family);
    if (head_depth > 0) config.head_depth = head_depth;
    which.change(config);
    return config;
}

}  // namespace imbrex::engine::test
