#include "model_config.hpp"

#include <cmath>
#include <imbrex/core/error.hpp>
#include <numbers>

namespace imbrex::engine {

namespace {

constexpr int most_layers = 4096;
constexpr int largest_size = 1 << 24;

void check_size(int value, int most, const char* what, const std::string& name) {
    require(value >= 1 && value <= most, name, ": ", what, " is ", value, "; 1 to ", most, " are allowed");
}

void check_rotary(const model_config& config, const std::string& name) {
    const rotary_config& rotary = config.rotary;
    require(std::isfinite(rotary.base) && rotary.base > 0, name, ": the rotary base is ", rotary.base,
            "; it must be positive");
    require(std::isfinite(rotary.factor) && rotary.factor > 0, name, ": the rotary scaling factor is ", rotary.factor,
            "; it must be positive");
    if (rotary.scaling == rotary_scaling::llama3) {
        const bool is_ordered = std::isfinite(rotary.high_frequency_factor) && rotary.low_frequency_factor > 0 &&
                                rotary.high_frequency_factor > rotary.low_frequency_factor;
        require(is_ordered, name, ": rotary scaling has low_freq_factor ", rotary.low_frequency_factor,
                " and high_freq_factor ", rotary.high_frequency_factor, "; they must be positive, the low one lower");
        check_size(rotary.original_context, largest_size, "the original context of the rotary scaling", name);
    }
    if (rotary.scaling == rotary_scaling::divisors) {
        require(rotary.divisors.size() * 2 == static_cast<std::size_t>(config.head_depth), name, ": there are ",
                rotary.divisors.size(), " rotary divisors; a head has ", config.head_depth / 2, " pairs");
        for (const float divisor : rotary.divisors) {
            require(std::isfinite(divisor) && divisor > 0, name, ": a rotary divisor is ", divisor,
                    "; it must be positive");
        }
    }
}

}  // namespace

const char* name_of(model_family family) {
    switch (family) {
        case model_family::llama:
            return "llama";
        case model_family::qwen2:
            return "qwen2";
        case model_family::qwen3:
            break;
    }
    return "qwen3";
}

void check_sizes(const model_config& config, const std::string& name) {
    check_size(config.layers, most_layers, "the number of layers", name);
    check_size(config.hidden, largest_size, "the hidden size", name);
    check_size(config.intermediate, largest_size, "the intermediate size", name);
    check_size(config.vocabulary, largest_size, "the vocabulary size", name);
    check_size(config.context, largest_size * 4, "the context length", name);
    check_size(config.heads, largest_size, "the number of heads", name);
    check_size(config.key_heads, largest_size, "the number of key heads", name);
    check_size(config.head_depth, largest_size, "the head size", name);
    require(config.heads % config.key_heads == 0, name, ": ", config.heads, " heads share ", config.key_heads,
            " key heads; the one must be a multiple of the other");
    require(config.head_depth % 2 == 0, name, ": the head size is ", config.head_depth,
            "; it must be even, for the rotation");
    require(std::int64_t(config.heads) * config.head_depth <= largest_size, name, ": ", config.heads, " heads of ",
            config.head_depth, " elements; all together may have ", largest_size);
    require(std::isfinite(config.norm_epsilon) && config.norm_epsilon > 0 && config.norm_epsilon < 1, name,
            ": the epsilon of the norms is ", config.norm_epsilon, "; it must be between 0 and 1");
    require(config.window >= 0, name, ": the window is ", config.window, "; it must be positive");
    check_rotary(config, name);
    const auto check_token = [&](int id, const char* what) {
        require(id >= 0 && id < config.vocabulary, name, ": the ", what, " token is ", id, "; the vocabulary has ",
                config.vocabulary, " tokens");
    };
    if (config.beginning_token) check_token(*config.beginning_token, "beginning");
    for (const int id : config.end_tokens) check_token(id, "end");
}

std::vector<expected_weight> expected_weights(const model_config& config) {
    const std::int64_t hidden = config.hidden, intermediate = config.intermediate, depth = config.head_depth;
    const std::int64_t query = config.heads * depth, key = config.key_heads * depth;
    std::vector<expected_weight> all{{"model.embed_tokens.weight", {config.vocabulary, hidden}}};
    for (int layer = 0; layer < config.layers; ++layer) {
        const std::string base = "model.layers." + std::to_string(layer) + ".";
        const std::string attention = base + "self_attn.";
        all.push_back({base + "input_layernorm.weight", {hidden}});
        all.push_back({attention + "q_proj.weight", {query, hidden}});
        all.push_back({attention + "k_proj.weight", {key, hidden}});
        all.push_back({attention + "v_proj.weight", {key, hidden}});
        if (config.query_key_value_bias) {
            all.push_back({attention + "q_proj.bias", {query}});
            all.push_back({attention + "k_proj.bias", {key}});
            all.push_back({attention + "v_proj.bias", {key}});
        }
        if (config.query_key_norm) {
            all.push_back({attention + "q_norm.weight", {depth}});
            all.push_back({attention + "k_norm.weight", {depth}});
        }
        all.push_back({attention + "o_proj.weight", {hidden, query}});
        all.push_back({base + "post_attention_layernorm.weight", {hidden}});
        all.push_back({base + "mlp.gate_proj.weight", {intermediate, hidden}});
        all.push_back({base + "mlp.up_proj.weight", {intermediate, hidden}});
        all.push_back({base + "mlp.down_proj.weight", {hidden, intermediate}});
    }
    all.push_back({"model.norm.weight", {hidden}});
    if (!config.tied) all.push_back({"lm_head.weight", {config.vocabulary, hidden}});
    return all;
}

void check_weights(const model_config& config, const weight_set& weights, const std::string& name) {
    for (const expected_weight& expected : expected_weights(config)) {
        const weight* found = weights.find(expected.name);
        require(found != nullptr, name, ": tensor \"", expected.name, "\" is missing");
        require(found->shape == expected.shape, name, ": tensor \"", expected.name, "\" has the shape ",
                to_string(found->shape), "; the configuration asks for ", to_string(expected.shape));
    }
}

std::vector<double> rotary_frequencies(const model_config& config) {
    const rotary_config& rotary = config.rotary;
    std::vector<double> frequencies;
    for (int pair = 0; pair < config.head_depth / 2; ++pair) {
        double frequency = std::pow(rotary.base, -2.0 * pair / config.head_depth);
        if (rotary.scaling == rotary_scaling::linear) {
            frequency /= rotary.factor;
        } else if (rotary.scaling == rotary_scaling::divisors) {
            frequency /= static_cast<double>(rotary.divisors[static_cast<std::size_t>(pair)]);
        } else if (rotary.scaling == rotary_scaling::llama3) {
            // How often it turns within the original context decides how much of it is kept.
            const double turns = rotary.original_context * frequency / (2 * std::numbers::pi);
            const double kept =
                (turns - rotary.low_frequency_factor) / (rotary.high_frequency_factor - rotary.low_frequency_factor);
            const double share = std::fmin(std::fmax(kept, 0), 1);
            frequency *= share + (1 - share) / rotary.factor;
        }
        frequencies.push_back(frequency);
    }
    return frequencies;
}

}  // namespace imbrex::engine
