// The model configuration from Hugging Face's config.json.
#include <algorithm>
#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/loading/json_text.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/model_config.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

int as_int(std::int64_t value, const char* key, const std::string& name) {
    require(value >= 0 && value <= std::numeric_limits<int>::max(), name, ": \"", key, "\" is ", value,
            "; it must be a whole number from 0 to 2^31 - 1");
    return static_cast<int>(value);
}

std::optional<int> optional_size(const json& object, const char* key, const std::string& name) {
    const auto value = int_member(object, key, name);
    if (!value) return {};
    return as_int(*value, key, name);
}

int needed_size(const json& object, const char* key, const std::string& name) {
    const auto value = optional_size(object, key, name);
    require(value.has_value(), name, ": \"", key, "\" is missing");
    return *value;
}

// A token id, an array of token ids, or null.
std::vector<int> token_ids(const json& object, const char* key, const std::string& name) {
    const json* value = find_member(object, key);
    if (!value) return {};
    std::vector<int> ids;
    for (const json& one : value->is_array() ? *value : json::array({*value})) {
        require(one.is_number_integer(), name, ": \"", key, "\" is ", shown(one), "; it must be a token id");
        ids.push_back(as_int(one.get<std::int64_t>(), key, name));
    }
    return ids;
}

// Older files have rope_theta and rope_scaling, newer ones rope_parameters.
void read_rope(const json& config, rope_config& rope, const std::string& name) {
    const json* parameters = find_member(config, "rope_parameters");
    const json* scaling = parameters ? parameters : find_member(config, "rope_scaling");
    rope.theta = double_member(parameters ? *parameters : config, "rope_theta", name).value_or(10000);
    if (!scaling) return;
    require(scaling->is_object(), name, ": \"rope_scaling\" is ", shown(*scaling), "; it must be an object");
    auto type = string_member(*scaling, "rope_type", name);
    if (!type) type = string_member(*scaling, "type", name);
    const auto number = [&](const char* key) {
        const auto value = double_member(*scaling, key, name);
        require(value.has_value(), name, ": RoPE scaling \"", type.value_or(""), "\": \"", key, "\" is missing");
        return *value;
    };
    if (!type || *type == "default") return;
    if (*type == "linear") {
        rope.scaling = rope_scaling::linear;
        rope.factor = number("factor");
    } else if (*type == "llama3") {
        rope.scaling = rope_scaling::llama3;
        rope.factor = number("factor");
        rope.low_freq_factor = number("low_freq_factor");
        rope.high_freq_factor = number("high_freq_factor");
        rope.original_max_position_embeddings = needed_size(*scaling, "original_max_position_embeddings", name);
    } else {
        require(false, name, ": RoPE scaling ", printable(*type), " is not known; linear and llama3 are");
    }
}

model_family family_of(const json& config, const std::string& name) {
    const auto type = string_member(config, "model_type", name);
    require(type.has_value(), name, ": \"model_type\" is missing");
    if (*type == "llama") return model_family::llama;
    if (*type == "qwen2") return model_family::qwen2;
    require(*type == "qwen3", name, ": architecture ", printable(*type), " is not known; llama, qwen2 and qwen3 are");
    return model_family::qwen3;
}

// Rejects unsupported settings that would change the result.
void refuse_the_unknown(const json& config, const std::string& name) {
    const std::string activation = string_member(config, "hidden_act", name).value_or("silu");
    require(activation == "silu", name, ": \"hidden_act\" is ", printable(activation), "; silu is known");
    for (const char* key : {"attention_bias", "mlp_bias"}) {
        require(!bool_member(config, key, name).value_or(false), name, ": \"", key,
                "\" is true; models without it are known");
    }
    const json* const scaling = find_member(config, "rope_scaling");
    const json* const parameters = find_member(config, "rope_parameters");
    for (const json* object : {&config, scaling, parameters}) {
        if (object == nullptr || !object->is_object()) continue;
        const double partial = double_member(*object, "partial_rotary_factor", name).value_or(1);
        require(partial == 1, name, ": \"partial_rotary_factor\" is ", partial, "; 1 is known");
    }
}

// Sliding window from a certain layer on. Newer files list a type per layer.
void read_window(const json& config, model_config& result, const std::string& name) {
    if (!bool_member(config, "use_sliding_window", name).value_or(false)) return;
    result.sliding_window = optional_size(config, "sliding_window", name).value_or(4096);
    result.first_sliding_window_layer = optional_size(config, "max_window_layers", name).value_or(28);
    const json* const types = find_member(config, "layer_types");
    if (types == nullptr) return;
    require(types->is_array() && types->size() == static_cast<std::size_t>(result.layers), name,
            ": \"layer_types\" is ", shown(*types), "; it must name a type for each of the ", result.layers, " layers");
    int full = 0;
    for (const json& type : *types) {
        require(type == "full_attention" || type == "sliding_attention", name, ": \"layer_types\" names ", shown(type),
                "; full_attention and sliding_attention are known");
        if (type == "full_attention") ++full;
    }
    for (int i = 0; i < full; ++i) {
        require(
            (*types)[static_cast<std::size_t>(i)] == "full_attention", name,
            ": \"layer_types\" has full attention after a window; models are known whose last layers have the window");
    }
    result.first_sliding_window_layer = full;
}

}  // namespace

model_config read_config(std::span<const std::byte> config, std::span<const std::byte> generation,
                         const std::string& name) {
    const json root = parse_json(as_text(config), name);
    require(root.is_object(), name, ": is ", shown(root), "; it must be an object");
    model_config result;
    result.family = family_of(root, name);
    refuse_the_unknown(root, name);
    result.layers = needed_size(root, "num_hidden_layers", name);
    result.hidden_size = needed_size(root, "hidden_size", name);
    result.intermediate_size = needed_size(root, "intermediate_size", name);
    result.heads = needed_size(root, "num_attention_heads", name);
    result.kv_heads = optional_size(root, "num_key_value_heads", name).value_or(result.heads);
    result.vocab_size = needed_size(root, "vocab_size", name);
    result.context = optional_size(root, "max_position_embeddings", name).value_or(2048);
    if (const auto head_dim = optional_size(root, "head_dim", name)) {
        result.head_dim = *head_dim;
    } else {
        require(result.heads > 0 && result.hidden_size % result.heads == 0, name, ": \"hidden_size\" is ",
                result.hidden_size, " for ", result.heads, " heads; without \"head_dim\" it must be a multiple");
        result.head_dim = result.hidden_size / result.heads;
    }
    const auto epsilon = double_member(root, "rms_norm_eps", name);
    require(epsilon.has_value(), name, ": \"rms_norm_eps\" is missing");
    result.rms_norm_eps = *epsilon;
    result.tie_word_embeddings = bool_member(root, "tie_word_embeddings", name).value_or(false);
    result.qkv_bias = result.family == model_family::qwen2;
    result.qk_norm = result.family == model_family::qwen3;
    read_rope(root, result.rope, name);
    read_window(root, result, name);
    const auto beginning = token_ids(root, "bos_token_id", name);
    if (!beginning.empty()) result.bos_token = beginning[0];
    result.eos_tokens = token_ids(root, "eos_token_id", name);
    if (!generation.empty()) {
        const json more = parse_json(as_text(generation), name);
        for (const int id : token_ids(more, "eos_token_id", name)) {
            if (std::ranges::find(result.eos_tokens, id) == result.eos_tokens.end()) result.eos_tokens.push_back(id);
        }
    }
    check_sizes(result, name);
    return result;
}

}  // namespace imbrex::engine
