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
    neutral_value{"expert_gating_func", 1},  // softmax
    neutral_value{"expert_weights_norm", 1},
    neutral_value{"expert_weights_scale", 1},
    neutral_value{"leading_dense_block_count", 0},
    neutral_value{"nextn_predict_layers", 0},
    neutral_value{"pooling_type", 0},
    neutral_value{"tokenizer.ggml.remove_extra_whitespaces", 0},
    neutral_value{"tokenizer.ggml.add_sep_token", 0},
};

// Fields of config.json that are read whatever the family is, or by another reader; the epsilon of the norm that the family
// does not have.
constexpr std::array always_read_fields{
    "model_type",
    "vocab_size",
    "max_position_embeddings",
    "tie_word_embeddings",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "partial_rotary_factor",
    "bos_token_id",
    "eos_token_id",
    "quantization_config",
    "original_max_position_embeddings",
    "rms_norm_eps",
    "layer_norm_eps",
};

// Fields that describe a file or its training, and those of other programs.
constexpr std::array harmless_fields{
    "architectures",
    "auto_map",
    "transformers_version",
    "transformers.js_config",
    "_name_or_path",
    "_commit_hash",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "dtype",
    "torch_dtype",
    "torchscript",
    "use_bfloat16",
    "unsloth_fixed",
    "unsloth_version",
    "is_llama_config",
    "is_decoder",
    "use_cache",
    "cache_implementation",
    "initializer_range",
    "pretraining_tp",
    "attention_dropout",
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "initial_context_length",  // GPT-OSS: that of the RoPE scaling
    "hidden_dropout",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "max_sequence_length",
    "pad_token_id",
    "sep_token_id",
    "unk_token_id",
    "decoder_start_token_id",
    "tokenizer_class",
    "prefix",
    "pruned_heads",
    "chunk_size_feed_forward",
    "finetuning_task",
    "task_specific_params",
    "problem_type",
    "id2label",
    "label2id",
    "return_dict",
    "output_attentions",
    "output_hidden_states",
    "tf_legacy_loss",
    // How to generate; the command line says it.
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "min_length",
    "max_length",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "early_stopping",
    "length_penalty",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
};

// Fields of RoPE parameters that are read for one type of scaling or another, and one that describes.
constexpr std::array rope_fields{
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "original_max_position_embeddings",
    "factor",
    "beta_fast",
    "beta_slow",
    "low_freq_factor",
    "high_freq_factor",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "short_factor",
    "long_factor",
    "finetuned",
    "full_attention",
    "sliding_attention",
};

// Values of fields that have no effect; false is 0.
constexpr std::array neutral_fields{
    neutral_value{"add_cross_attention", 0},
    neutral_value{"is_encoder_decoder", 0},
    neutral_value{"tie_encoder_decoder", 0},
    neutral_value{"use_bidirectional_attention", 0},
    neutral_value{"use_sliding_window", 0},
    neutral_value{"use_mrope", 0},
    neutral_value{"use_qk_norm", 0},
    neutral_value{"qk_layernorm", 0},
    neutral_value{"rope_interleaved", 0},
    neutral_value{"lm_head_bias", 0},
    neutral_value{"attn_logit_softcapping", 0},
    neutral_value{"final_logit_softcapping", 0},
    neutral_value{"num_experts", 0},
    neutral_value{"num_local_experts", 0},
    neutral_value{"n_shared_experts", 0},
    neutral_value{"is_causal", 1},
    neutral_value{"logit_scale", 1},
    neutral_value{"logits_scaling", 1},
    neutral_value{"swiglu_alpha", 1.702},
    neutral_value{"embedding_multiplier", 1},
    neutral_value{"residual_multiplier", 1},
    neutral_value{"full_attn_mod", 1},  // Phi-4
    neutral_value{"interpolate_factor", 1},
    neutral_value{"_sliding_window_pattern", 6},  // Gemma 3's, beside layer_types
    neutral_value{"sliding_window_size", 4096},   // Gemma 2's, beside sliding_window
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

bool is_neutral(const std::string& field, const json& value) {
    if (value.is_null()) return true;
    if (!value.is_boolean() && !value.is_number()) return false;
    const double number = value.is_boolean() ? value.get<bool>() : value.get<double>();
    return std::ranges::any_of(neutral_fields,
                               [&](const neutral_value& one) { return field == one.key_end && number == one.value; });
}

// Parameters of RoPE, also those of each type of layer.
void check_rope_fields(const json& parameters, const std::string& file) {
    for (const auto& [field, value] : parameters.items()) {
        if (field == "full_attention" || field == "sliding_attention") check_rope_fields(value, file);
        require(value.is_null() || std::ranges::find(rope_fields, field) != rope_fields.end(), file,
                ": RoPE parameter ", printable(field), " is ", shown(value),
                "; this engine does not implement it, and without it the model would give wrong results");
    }
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

void check_unread_fields(const json& config, const std::set<std::string, std::less<>>& read, const std::string& file) {
    const auto is_in = [](const auto& list, const std::string& field) {
        return std::ranges::find(list, field) != list.end();
    };
    const auto uses_windows = config.find("use_sliding_window");
    const bool has_no_windows = uses_windows != config.end() && *uses_windows == false;
    for (const auto& [field, value] : config.items()) {
        if (is_in(always_read_fields, field) || read.contains(field)) continue;
        if (is_in(harmless_fields, field) || is_neutral(field, value)) continue;
        if (has_no_windows && (field == "sliding_window" || field == "max_window_layers")) continue;
        require(false, file, ": ", printable(field), " is ", shown(value),
                "; this engine does not implement it, and without it the model would give wrong results");
    }
    for (const char* field : {"rope_parameters", "rope_scaling"}) {
        const json* parameters = find_member(config, field);
        if (parameters != nullptr && parameters->is_object()) check_rope_fields(*parameters, file);
    }
}

}  // namespace imbrex::engine
