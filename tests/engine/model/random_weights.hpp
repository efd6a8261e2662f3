// Small random models of each family for tests: odd sizes, and weights for which attention and norms matter. In memory,
// or written as a Hugging Face folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "imbrex/core/bf16.hpp"
#include "imbrex/core/error.hpp"
#include "imbrex/core/fp16.hpp"

namespace imbrex::engine::test {

// 32 values in a ggml block. The scale fits the largest value.
inline void append_block(std::vector<std::byte>& bytes, weight_type type, std::span<const float> values) {
    float highest = 0;
    for (const float value : values) highest = std::max(highest, std::abs(value));
    const std::uint16_t scale = fp16::encode(highest / (type == weight_type::q8_0 ? 127.0f : 7.0f));
    const auto whole = [&](std::size_t i) {
        return highest == 0 ? 0 : static_cast<int>(std::lround(values[i] / fp16::decode(scale)));
    };
    bytes.push_back(static_cast<std::byte>(scale & 255));
    bytes.push_back(static_cast<std::byte>(scale >> 8));
    for (std::size_t i = 0; i < (type == weight_type::q8_0 ? 32 : 16); ++i) {
        const int number = type == weight_type::q8_0 ? whole(i) : (whole(i) + 8) | (whole(i + 16) + 8) << 4;
        bytes.push_back(static_cast<std::byte>(number));
    }
}

// Adds a weight that owns its memory, rounded to the type. For block types, vectors and rows that are not a multiple of
// the block stay f32, as in GGUF files.
inline void add_weight(weight_set& weights, const expected_weight& described, weight_type type,
                       std::span<const float> values) {
    const auto block = static_cast<std::size_t>(format_of(type).elements);
    if (block > 1 && (described.shape.size() != 2 || described.shape[1] % format_of(type).elements != 0)) {
        return add_weight(weights, described, weight_type::f32, values);
    }
    auto memory = std::make_shared<std::vector<std::byte>>();
    const auto append = [&](const auto number) {
        const auto* first = reinterpret_cast<const std::byte*>(&number);
        memory->insert(memory->end(), first, first + sizeof number);
    };
    for (std::size_t i = 0; i < values.size(); i += block) {
        if (type == weight_type::f32) {
            append(values[i]);
        } else if (type == weight_type::f16) {
            append(fp16::encode(values[i]));
        } else if (type == weight_type::bf16) {
            append(bf16::encode(values[i]));
        } else {
            append_block(*memory, type, values.subspan(i, block));
        }
    }
    weights.add({described.name, type, described.shape, *memory}, "random_weights");
    weights.keep(memory);
}

// A vocabulary of the letters.
inline tokenizer letters() {
    vocabulary words;
    words.name = "letters";
    for (char letter = 'a'; letter <= 'z'; ++letter) words.tokens.push_back({std::string(1, letter), {}, 0});
    return tokenizer(std::move(words));
}

inline model_config small_config(model_family family) {
    model_config config;
    config.family = family;
    config.layers = 3;
    config.hidden_size = 72;
    config.intermediate_size = 172;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = family == model_family::llama ? 16 : 24;
    config.vocab_size = 331;
    config.context = 256;
    config.norm_eps = 0.01;  // large enough to matter
    config.tie_word_embeddings = family == model_family::qwen2;
    config.qkv_bias = family == model_family::qwen2;
    config.qk_norm = family == model_family::qwen3 ? qk_norm_rows::head : qk_norm_rows::none;
    config.rope.theta = family == model_family::llama ? 10000 : 1e6;
    return config;
}

inline model_files random_model(const model_config& config, weight_type type = weight_type::f32, unsigned seed = 1) {
    model_files model{"random", config, {}, letters()};
    std::mt19937 random(seed);
    const auto uniform = [&](double most) { return static_cast<float>((random() / 4294967296.0 * 2 - 1) * most); };
    for (const expected_weight& expected : expected_weights(config)) {
        std::int64_t count = 1;
        for (const std::int64_t size : expected.shape) count *= size;
        const bool is_matrix = expected.shape.size() == 2;
        const bool is_norm = expected.name.find("norm.weight") != std::string::npos;
        // Inputs and outputs of matrices have a mean square of 1.
        const double spread = expected.name == "model.embed_tokens.weight" ? 1
                              : is_matrix ? std::sqrt(3.0 / static_cast<double>(expected.shape[1]))
                                          : 0.5;
        std::vector<float> values(static_cast<std::size_t>(count));
        for (float& value : values) value = uniform(spread) + (is_norm ? 1.0f : 0.0f);
        add_weight(model.weights, expected, type, values);
    }
    return model;
}

// The same model with weights transformed by a function; f32, or of the type it returns.
template <class Change>
model_files changed(const model_files& model, const Change& change) {
    model_files result{model.name, model.config, {}, letters()};
    for (const weight& one : model.weights.all()) {
        std::vector<float> values = to_floats(one);
        weight_type type = weight_type::f32;
        if constexpr (std::is_void_v<std::invoke_result_t<Change, const weight&, std::vector<float>&>>) {
            change(one, values);
        } else {
            type = change(one, values);
        }
        add_weight(result.weights, {one.name, one.shape}, type, values);
    }
    return result;
}

inline std::vector<int> random_tokens(int count, int vocabulary, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<int> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(static_cast<int>(random() % static_cast<unsigned>(vocabulary)));
    return tokens;
}

inline std::string config_json(const model_config& config) {
    const rope_config& rope = config.rope;
    require(rope.style == rope_style::half_split && rope.freq_factors.empty(),
            "config: its rotation cannot be said in config.json");
    std::ostringstream text;
    text.precision(17);
    text << std::boolalpha << "{\"model_type\": \"" << name_of(config.family)
         << "\",\n \"num_hidden_layers\": " << config.layers << ", \"hidden_size\": " << config.hidden_size
         << ", \"intermediate_size\": " << config.intermediate_size << ",\n \"num_attention_heads\": " << config.heads
         << ", \"num_key_value_heads\": " << config.kv_heads << ", \"head_dim\": " << config.head_dim
         << ",\n \"vocab_size\": " << config.vocab_size << ", \"max_position_embeddings\": " << config.context
         << ", \"rms_norm_eps\": " << config.norm_eps << ", \"tie_word_embeddings\": " << config.tie_word_embeddings
         << ",\n \"rope_theta\": " << rope.theta;
    if (rope.scaling != rope_scaling::none) {
        const bool is_linear = rope.scaling == rope_scaling::linear;
        text << ", \"rope_scaling\": {\"rope_type\": \"" << (is_linear ? "linear" : "llama3")
             << "\", \"factor\": " << rope.factor << ", \"low_freq_factor\": " << rope.low_freq_factor
             << ", \"high_freq_factor\": " << rope.high_freq_factor
             << ", \"original_max_position_embeddings\": " << rope.original_max_position_embeddings << "}";
    }
    int window = 0, first = 0;
    for (int layer = 0; layer < config.layers; ++layer) {
        window = std::max(window, config.attention_of(layer).window);
        if (window == 0) ++first;
    }
    if (window > 0) {
        text << ",\n \"use_sliding_window\": true, \"sliding_window\": " << window
             << ", \"max_window_layers\": " << first;
    }
    text << "}\n";
    return text.str();
}

inline std::string safetensors_bytes(const weight_set& weights) {
    std::ostringstream header;
    std::string data;
    for (const weight& one : weights.all()) {
        const char* type = one.type == weight_type::f32 ? "F32" : one.type == weight_type::f16 ? "F16" : "BF16";
        header << (data.empty() ? "{\"" : ",\"") << one.name << "\":{\"dtype\":\"" << type
               << "\",\"shape\":" << to_string(one.shape) << ",\"data_offsets\":[" << data.size() << ",";
        data += as_text(one.bytes);
        header << data.size() << "]}";
    }
    const std::string text = header.str() + "}";
    std::string length(8, '\0');
    const std::uint64_t count = text.size();
    std::memcpy(length.data(), &count, length.size());
    return length + text + data;
}

// Writes config.json, model.safetensors and a minimal tokenizer.json.
inline void write_folder(const model_files& model, const std::filesystem::path& folder) {
    std::string tokens;
    for (int id = 0; id < model.tokens.size(); ++id) {
        tokens += (id == 0 ? "\"" : ", \"") + model.tokens.at(id).bytes + "\": " + std::to_string(id);
    }
    std::ofstream(folder / "config.json") << config_json(model.config);
    std::ofstream(folder / "model.safetensors", std::ios::binary) << safetensors_bytes(model.weights);
    std::ofstream(folder / "tokenizer.json")
        << R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {)"
        << tokens << "}, \"merges\": []}}\n";
}

}  // namespace imbrex::engine::test
