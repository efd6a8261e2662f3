// The model configuration from GGUF metadata. Keys are prefixed with the name of the architecture.
#include <algorithm>
#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/loading/model_config.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

model_family family_of(const gguf_metadata& metadata) {
    const auto architecture = metadata.text("general.architecture");
    require(architecture.has_value(), metadata.file(), ": general.architecture is missing");
    if (*architecture == "llama") return model_family::llama;
    if (*architecture == "qwen2") return model_family::qwen2;
    require(*architecture == "qwen3", metadata.file(), ": architecture ", printable(*architecture),
            " is not known; llama, qwen2 and qwen3 are");
    return model_family::qwen3;
}

std::optional<int> size(const gguf_metadata& metadata, const std::string& key) {
    const auto value = metadata.whole(key);
    if (!value) return {};
    require(*value >= 0 && *value <= std::numeric_limits<int>::max(), metadata.file(), ": ", key, " is ", *value,
            "; it must be a whole number from 0 to 2^31 - 1");
    return static_cast<int>(*value);
}

int needed_size(const gguf_metadata& metadata, const std::string& key) {
    const auto value = size(metadata, key);
    require(value.has_value(), metadata.file(), ": ", key, " is missing");
    return *value;
}

std::optional<int> token_id(const gguf_metadata& metadata, const char* key) {
    const auto value = metadata.whole(key);
    if (!value || *value == -1 || *value == 0xffffffff) return {};  // some writers encode "none" so
    return size(metadata, key);
}

void read_rope(const gguf_metadata& metadata, const weight_set& weights, const std::string& prefix,
               model_config& config) {
    rope_config& rope = config.rope;
    rope.style = config.family == model_family::llama ? rope_style::interleaved : rope_style::half_split;
    rope.theta = metadata.real(prefix + "rope.freq_base").value_or(10000);
    const int dimensions = size(metadata, prefix + "rope.dimension_count").value_or(config.head_dim);
    require(dimensions == config.head_dim, metadata.file(), ": ", prefix, "rope.dimension_count is ", dimensions,
            "; heads have ", config.head_dim, " elements; partial RoPE is not supported");
    const std::string scaling = metadata.text(prefix + "rope.scaling.type").value_or("none");
    if (scaling == "linear") {
        rope.scaling = rope_scaling::linear;
        rope.factor = metadata.real(prefix + "rope.scaling.factor").value_or(1);
    } else {
        require(scaling == "none", metadata.file(), ": RoPE scaling ", printable(scaling), " is not known; linear is");
    }
    if (const weight* divisors =
            weights.find("rope_freqs.weight")) {  // Llama 3.1's scaling, precomputed by the converter
        require(rope.scaling == rope_scaling::none, metadata.file(), ": has RoPE scaling twice");
        rope.scaling = rope_scaling::freq_factors;
        rope.freq_factors = to_floats(*divisors);
    }
}

}  // namespace

model_config gguf_config(const gguf_metadata& metadata, const weight_set& weights) {
    const std::string& name = metadata.file();
    model_config config;
    config.family = family_of(metadata);
    const std::string prefix = std::string(name_of(config.family)) + ".";
    const int experts = size(metadata, prefix + "expert_count").value_or(0);
    require(experts == 0, name, ": has ", experts, " experts; mixture-of-experts models are not supported");
    config.layers = needed_size(metadata, prefix + "block_count");
    config.hidden_size = needed_size(metadata, prefix + "embedding_length");
    config.intermediate_size = needed_size(metadata, prefix + "feed_forward_length");
    config.context = needed_size(metadata, prefix + "context_length");
    config.heads = needed_size(metadata, prefix + "attention.head_count");
    config.kv_heads = size(metadata, prefix + "attention.head_count_kv").value_or(config.heads);
    const auto epsilon = metadata.real(prefix + "attention.layer_norm_rms_epsilon");
    require(epsilon.has_value(), name, ": ", prefix, "attention.layer_norm_rms_epsilon is missing");
    config.rms_norm_eps = *epsilon;
    if (const auto head_dim = size(metadata, prefix + "attention.key_length")) {
        config.head_dim = *head_dim;
    } else {
        require(config.heads > 0 && config.hidden_size % config.heads == 0, name, ": ", prefix, "embedding_length is ",
                config.hidden_size, " for ", config.heads,
                " heads; without attention.key_length it must be a multiple");
        config.head_dim = config.hidden_size / config.heads;
    }
    const int head_dim_v = size(metadata, prefix + "attention.value_length").value_or(config.head_dim);
    require(head_dim_v == config.head_dim, name, ": ", prefix, "attention.value_length is ", head_dim_v,
            "; it must be that of the keys, ", config.head_dim);
    config.qkv_bias = config.family == model_family::qwen2;
    config.qk_norm = config.family == model_family::qwen3;
    config.tie_word_embeddings = weights.find("lm_head.weight") == nullptr;

    // The vocabulary size is the length of the token list; embedding and metadata must agree.
    const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
    require(tokens != nullptr, name, ": tokenizer.ggml.tokens is missing");
    require(tokens->size() <= std::numeric_limits<int>::max(), name, ": has ", tokens->size(), " tokens");
    config.vocab_size = static_cast<int>(tokens->size());
    const int said = size(metadata, prefix + "vocab_size").value_or(config.vocab_size);
    require(said == config.vocab_size, name, ": ", prefix, "vocab_size is ", said, "; the token list has ",
            config.vocab_size);
    config.bos_token = token_id(metadata, "tokenizer.ggml.bos_token_id");
    std::vector<int>& ends = config.eos_tokens;
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        const auto id = token_id(metadata, key);
        if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
    }
    read_rope(metadata, weights, prefix, config);
    check_sizes(config, name);
    return config;
}

}  // namespace imbrex::engine
