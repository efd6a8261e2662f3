#include "engine/loading/model_config.hpp"

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

void check_rope(const model_config& config, const std::string& name) {
    const rope_config& rope = config.rope;
    require(std::isfinite(rope.theta) && rope.theta > 0, name, ": the RoPE theta is ", rope.theta,
            "; it must be positive");
    require(std::isfinite(rope.factor) && rope.factor > 0, name, ": the RoPE scaling factor is ", rope.factor,
            "; it must be positive");
    if (rope.scaling == rope_scaling::llama3) {
        const bool is_ordered = std::isfinite(rope.high_freq_factor) && rope.low_freq_factor > 0 &&
                                rope.high_freq_factor > rope.low_freq_factor;
        require(is_ordered, name, ": RoPE scaling has low_freq_factor ", rope.low_freq_factor, " and high_freq_factor ",
                rope.high_freq_factor, "; they must be positive, the low one lower");
        check_size(rope.original_max_position_embeddings, largest_size, "the original context of the RoPE scaling",
                   name);
    }
    if (rope.scaling == rope_scaling::freq_factors) {
        require(rope.freq_factors.size() * 2 == static_cast<std::size_t>(config.head_dim), name, ": there are ",
                rope.freq_factors.size(), " RoPE frequency factors; a head has ", config.head_dim / 2, " pairs");
        for (const float divisor : rope.freq_factors) {
            require(std::isfinite(divisor) && divisor > 0, name, ": a RoPE frequency factor is ", divisor,
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
    check_size(config.hidden_size, largest_size, "the hidden size", name);
    check_size(config.intermediate_size, largest_size, "the intermediate size", name);
    check_size(config.vocab_size, largest_size, "the vocabulary size", name);
    check_size(config.context, largest_size * 4, "the context length", name);
    check_size(config.heads, largest_size, "the number of heads", name);
    check_size(config.kv_heads, largest_size, "the number of KV heads", name);
    check_size(config.head_dim, largest_size, "the head size", name);
    require(config.heads % config.kv_heads == 0, name, ": ", config.heads, " heads share ", config.kv_heads,
            " KV heads; the number of heads must be a multiple of it");
    require(config.head_dim % 2 == 0, name, ": the head size is ", config.head_dim, "; it must be even, for RoPE");
    require(std::int64_t(config.heads) * config.head_dim <= largest_size, name, ": ", config.heads, " heads of ",
            config.head_dim, " elements; heads * head_dim must be at most ", largest_size);
    require(std::isfinite(config.rms_norm_eps) && config.rms_norm_eps > 0 && config.rms_norm_eps < 1, name,
            ": the epsilon of the norms is ", config.rms_norm_eps, "; it must be between 0 and 1");
    require(config.sliding_window >= 0, name, ": the window is ", config.sliding_window, "; it must be positive");
    check_rope(config, name);
    const auto check_token = [&](int id, const char* what) {
        require(id >= 0 && id < config.vocab_size, name, ": the ", what, " token is ", id, "; the vocabulary has ",
                config.vocab_size, " tokens");
    };
    if (config.bos_token) check_token(*config.bos_token, "beginning");
    for (const int id : config.eos_tokens) check_token(id, "end");
}

std::vector<expected_weight> expected_weights(const model_config& config) {
    const std::int64_t hidden = config.hidden_size, intermediate = config.intermediate_size, head_dim = config.head_dim;
    const std::int64_t query = config.heads * head_dim, key = config.kv_heads * head_dim;
    std::vector<expected_weight> all{{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
    for (int layer = 0; layer < config.layers; ++layer) {
        const std::string base = "model.layers." + std::to_string(layer) + ".";
        const std::string attention = base + "self_attn.";
        all.push_back({base + "input_layernorm.weight", {hidden}});
        all.push_back({attention + "q_proj.weight", {query, hidden}});
        all.push_back({attention + "k_proj.weight", {key, hidden}});
        all.push_back({attention + "v_proj.weight", {key, hidden}});
        if (config.qkv_bias) {
            all.push_back({attention + "q_proj.bias", {query}});
            all.push_back({attention + "k_proj.bias", {key}});
            all.push_back({attention + "v_proj.bias", {key}});
        }
        if (config.qk_norm) {
            all.push_back({attention + "q_norm.weight", {head_dim}});
            all.push_back({attention + "k_norm.weight", {head_dim}});
        }
        all.push_back({attention + "o_proj.weight", {hidden, query}});
        all.push_back({base + "post_attention_layernorm.weight", {hidden}});
        all.push_back({base + "mlp.gate_proj.weight", {intermediate, hidden}});
        all.push_back({base + "mlp.up_proj.weight", {intermediate, hidden}});
        all.push_back({base + "mlp.down_proj.weight", {hidden, intermediate}});
    }
    all.push_back({"model.norm.weight", {hidden}});
    if (!config.tie_word_embeddings) all.push_back({"lm_head.weight", {config.vocab_size, hidden}});
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

std::vector<double> rope_inv_freq(const model_config& config) {
    const rope_config& rope = config.rope;
    std::vector<double> frequencies;
    for (int pair = 0; pair < config.head_dim / 2; ++pair) {
        double frequency = std::pow(rope.theta, -2.0 * pair / config.head_dim);
        if (rope.scaling == rope_scaling::linear) {
            frequency /= rope.factor;
        } else if (rope.scaling == rope_scaling::freq_factors) {
            frequency /= static_cast<double>(rope.freq_factors[static_cast<std::size_t>(pair)]);
        } else if (rope.scaling == rope_scaling::llama3) {
            // The number of rotations within the original context decides how much of the frequency is kept.
            const double turns = rope.original_max_position_embeddings * frequency / (2 * std::numbers::pi);
            const double kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
            const double share = std::fmin(std::fmax(kept, 0), 1);
            frequency *= share + (1 - share) / rope.factor;
        }
        frequencies.push_back(frequency);
    }
    return frequencies;
}

}  // namespace imbrex::engine
