#include "engine/loading/unread_content.hpp"

#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

// Ends of names of tensors that are computed from the configuration.
constexpr std::array harmless_tensor_ends{
    ".rotary_emb.inv_freq", ".attn.masked_bias", ".attention.masked_bias", ".position_ids", ".attn_rot_embd",
};

// Ends of keys of an architecture that describe the model and have no effect here.
constexpr std::array harmless_keys{
    "tensor_data_layout",           "rope.scaling.finetuned", "rope.scaling.original_context_length",
    "attention.layer_norm_epsilon", "expert_used_count",
};

// Tokens that are used by name or by id where a program wants them, templates, and formats of other programs.
constexpr std::array harmless_tokenizer_ends{
    "_token_id",   "add_bos_token", "add_eos_token", "add_space_prefix", "token_type_count",
    "ggml.scores", "ggml.merges",   "ggml.pre",      "huggingface.json", "rwkv.world",
};

// Values that have no effect.
struct neutral_value {
    std::string_view key_end;
    double value;
};
constexpr std::array neutral_values{
    neutral_value{"attention.causal", 1},
    neutral_value{"rope.scale_linear", 1},
    neutral_value{"rope.scaling.factor", 1},
    neutral_value{"rope.scaling.attn_factor", 1},
    neutral_value{"rope.scaling.yarn_log_multiplier", 0},
    neutral_value{"logit_scale", 1},
    neutral_value{"embedding_scale", 1},
    neutral_value{"residual_scale", 1},
    neutral_value{"attn_logit_softcapping", 0},
    neutral_value{"final_logit_softcapping", 0},
    neutral_value{"attention.clamp_kqv", 0},
    neutral_value{"attention.max_alibi_bias", 0},
    neutral_value{"attention.sliding_window", 0},
    neutral_value{"expert_count", 0},
    neutral_value{"expert_shared_count", 0},
    neutral_value{"leading_dense_block_count", 0},
    neutral_value{"nextn_predict_layers", 0},
    neutral_value{"pooling_type", 0},
    neutral_value{"tokenizer.ggml.remove_extra_whitespaces", 0},
    neutral_value{"tokenizer.ggml.add_sep_token", 0},
};

template <class Ends>
bool ends_with_one(std::string_view name, const Ends& ends) {
    return std::ranges::any_of(ends, [&](std::string_view end) { return name.ends_with(end); });
}

bool is_zero_bias(const weight& one) {
    constexpr std::int64_t most = 1 << 24;
    if (!one.name.ends_with(".bias") || one.elements() > most) return false;
    const std::vector<float> values = to_floats(one);
    return std::ranges::all_of(values, [](float value) { return value == 0; });
}

bool is_neutral(std::string_view key, const gguf_value& value) {
    double number = 0;
    if (const auto* whole = std::get_if<std::int64_t>(&value.content)) {
        number = static_cast<double>(*whole);
    } else if (const auto* real = std::get_if<double>(&value.content)) {
        number = *real;
    } else {
        return false;
    }
    return std::ranges::any_of(
        neutral_values, [&](const neutral_value& one) { return key.ends_with(one.key_end) && number == one.value; });
}

std::string shown(const gguf_value& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value.content)) {
        if (value.type == gguf_type::boolean) return *whole ? "true" : "false";
        return std::to_string(*whole);
    }
    if (const auto* real = std::get_if<double>(&value.content)) return std::to_string(*real);
    if (const auto* text = std::get_if<std::string>(&value.content)) return printable(*text);
    return "an array";
}

}  // namespace

void check_unread_weights(const weight_set& weights, bool is_tied, const std::string& file) {
    for (const weight* one : weights.unread()) {
        if (ends_with_one(one->name, harmless_tensor_ends) || is_zero_bias(*one)) continue;
        if (is_tied && one->name == "lm_head.weight") continue;
        const std::string& name = one->name_in_file.empty() ? one->name : one->name_in_file;
        require(false, file, ": tensor ", printable(name), " of shape ", to_string(one->shape),
                " is not used by this engine; without it the model would give wrong results");
    }
}

void check_unread_keys(const gguf_metadata& metadata) {
    const std::string prefix = metadata.text("general.architecture").value_or("") + ".";
    for (const std::string& key : metadata.unread()) {
        const gguf_value& value = *metadata.find(key);
        if (is_neutral(key, value)) continue;
        if (key.starts_with("tokenizer.")) {
            if (ends_with_one(key, harmless_tokenizer_ends) || key.starts_with("tokenizer.chat_template")) continue;
        } else if (key.starts_with(prefix)) {
            if (ends_with_one(key, harmless_keys)) continue;
        } else if (key == "general.type") {
            require(value.content == gguf_value{.content = "model"}.content, metadata.file(), ": general.type is ",
                    shown(value), "; a file of the type \"model\" can be opened");
            continue;
        } else if (!key.starts_with("adapter.")) {
            continue;  // general.* describes the model; other prefixes belong to other programs
        }
        require(false, metadata.file(), ": key ", printable(key), " is ", shown(value),
                "; this engine does not implement it, and without it the model would give wrong results");
    }
}

}  // namespace imbrex::engine
