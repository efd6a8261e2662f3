// The model configuration from GGUF metadata. Keys are prefixed with the name of the architecture.
#include <algorithm>
#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/loading/families.hpp"
#include "engine/loading/model_config.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

std::optional<int> size(const gguf_metadata& metadata, const std::string& key) {
    const auto value = metadata.whole(key);
    if (!value) return {};
    require(*value >= 0 && *value <= std::numeric_limits<int>::max(), metadata.file(), ": ", key, " is ", *value,
            "; it must be a whole number from 0 to 2^31 - 1");
    return static_cast<int>(*value);
}

std::optional<int> token_id(const gguf_metadata& metadata, const char* key) {
    const auto value = metadata.whole(key);
    if (!value || *value == -1 || *value == 0xffffffff) return {};  // some writers encode "none" so
    return size(metadata, key);
}

class gguf_settings final : public model_settings {
  public:
    gguf_settings(const gguf_metadata& metadata, const weight_set& weights, std::string prefix)
        : metadata_(metadata), weights_(weights), prefix_(std::move(prefix)) {}

    bool is_gguf() const override { return true; }
    const std::string& file() const override { return metadata_.file(); }
    std::string shown(setting which) const override {
        return which.gguf == nullptr ? "a setting of config.json" : key(which);
    }
    std::optional<int> size(setting which) const override {
        return which.gguf == nullptr ? std::nullopt : engine::size(metadata_, key(which));
    }
    std::optional<double> real(setting which) const override {
        return which.gguf == nullptr ? std::nullopt : metadata_.real(key(which));
    }
    std::optional<bool> truth(setting which) const override {
        return which.gguf == nullptr ? std::nullopt : metadata_.truth(key(which));
    }
    std::optional<std::string> text(setting which) const override {
        return which.gguf == nullptr ? std::nullopt : metadata_.text(key(which));
    }
    std::optional<std::vector<int>> sizes(setting which) const override {
        const gguf_value* value = which.gguf == nullptr ? nullptr : metadata_.find(key(which));
        const auto* all = value == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(&value->content);
        if (all == nullptr) return {};
        return std::vector<int>(all->begin(), all->end());
    }
    std::optional<std::vector<std::string>> texts(setting) const override { return {}; }
    bool has_tensor(const std::string& name) const override { return weights_.find(name) != nullptr; }

  private:
    std::string key(setting which) const { return prefix_ + which.gguf; }

    const gguf_metadata& metadata_;
    const weight_set& weights_;
    std::string prefix_;
};

// Refuses values that the model cannot obey. Keys that nobody asks for are refused by unread_content.hpp.
void refuse_the_unknown(const model_settings& from, const model_config& config) {
    const int experts = from.size({nullptr, "expert_count"}).value_or(0);
    require(experts == config.experts.count, from.file(), ": has ", experts,
            " experts; this family is known without experts");
    constexpr setting value_length{nullptr, "attention.value_length"};
    const int head_dim_v = from.size(value_length).value_or(config.head_dim);
    require(head_dim_v == config.head_dim, from.file(), ": ", from.shown(value_length), " is ", head_dim_v,
            "; it must be that of the keys, ", config.head_dim);
    constexpr setting window{nullptr, "attention.sliding_window"};
    const int tokens = from.size(window).value_or(0);
    const bool has_window =
        std::ranges::any_of(config.attention_layers, [](const layer_attention& one) { return one.window > 0; });
    constexpr setting ext_factor{nullptr, "rope.scaling.yarn_ext_factor"};
    const double extrapolated = from.real(ext_factor).value_or(1);
    require(extrapolated == 1, from.file(), ": ", from.shown(ext_factor), " is ", extrapolated, "; 1 is known");
    require(tokens == 0 || has_window, from.file(), ": ", from.shown(window), " is ", tokens,
            "; this family is known without a window");
}

void read_scaling(const model_settings& from, const weight_set& weights, model_config& config) {
    rope_config& rope = config.rope;
    const double linear = from.real({nullptr, "rope.scale_linear"}).value_or(1);  // of early files
    const double factor = from.real({nullptr, "rope.scaling.factor"}).value_or(linear);
    const std::string type = from.text({nullptr, "rope.scaling.type"}).value_or(factor == 1 ? "none" : "linear");
    const double attention = from.real({nullptr, "rope.scaling.attn_factor"}).value_or(1);
    rope.original_max_position_embeddings =
        from.size({nullptr, "rope.scaling.original_context_length"}).value_or(config.context);
    if (type == "linear") {
        rope.scaling = rope_scaling::linear;
        rope.factor = factor;
    } else if (type == "yarn") {
        rope.scaling = rope_scaling::yarn;
        rope.factor = factor;
        rope.beta_fast = from.real({nullptr, "rope.scaling.yarn_beta_fast"}).value_or(rope.beta_fast);
        rope.beta_slow = from.real({nullptr, "rope.scaling.yarn_beta_slow"}).value_or(rope.beta_slow);
        rope.attention_factor = from.real({nullptr, "rope.scaling.yarn_attn_factor"});
        if (const auto mscale = from.real({nullptr, "rope.scaling.yarn_log_multiplier"})) {
            rope.mscale = 1;
            rope.mscale_all_dim = mscale;
        }
        if (attention != 1) rope.attention_factor = attention * rope_attention_factor(config, rope);
    } else {
        require(type == "none" || type == "longrope", from.file(), ": RoPE scaling ", printable(type),
                " is not known; none, linear, yarn and longrope are");
    }
    const weight* divisors = weights.find("rope_freqs.weight");  // Llama 3.1's scaling, precomputed by the converter
    const weight* of_short = weights.find("rope_factors_short.weight");
    const weight* of_long = weights.find("rope_factors_long.weight");
    const bool is_long = of_short != nullptr && of_long != nullptr;
    require(type != "longrope" || is_long, from.file(),
            ": has RoPE scaling longrope without rope_factors_short.weight and rope_factors_long.weight");
    if (divisors == nullptr && !is_long) return;
    require(rope.scaling == rope_scaling::none && (divisors == nullptr || !is_long), from.file(),
            ": has RoPE scaling twice");
    rope.freq_factors = to_floats(is_long ? *of_short : *divisors);
    if (!is_long) return;
    rope.scaling = rope_scaling::longrope;
    rope.long_freq_factors = to_floats(*of_long);
    rope.attention_factor = attention;
}

void read_rope(const model_settings& from, const weight_set& weights, rope_style style, model_config& config) {
    config.rope.style = style;
    config.rope.theta = from.real({nullptr, "rope.freq_base"}).value_or(config.rope.theta);
    constexpr setting dimension_count{nullptr, "rope.dimension_count"};
    const int rotary_dim = from.size(dimension_count).value_or(config.head_dim);
    require(rotary_dim >= 2 && rotary_dim % 2 == 0 && rotary_dim <= config.head_dim, from.file(), ": ",
            from.shown(dimension_count), " is ", rotary_dim, "; heads have ", config.head_dim,
            " elements, and it must be even");
    config.rope.rotary_dim = rotary_dim;
    if (config.local_rope) {
        config.local_rope->style = style;
        config.local_rope->rotary_dim = rotary_dim;
    }
    read_scaling(from, weights, config);
}

}  // namespace

model_config gguf_config(const gguf_metadata& metadata, const weight_set& weights) {
    const std::string& name = metadata.file();
    const auto architecture = metadata.text("general.architecture");
    require(architecture.has_value(), name, ": general.architecture is missing");
    const family_description& family = family_of_architecture(*architecture, name);
    const gguf_settings from(metadata, weights, *architecture + ".");
    model_config config;
    read_family(from, family, config);
    config.context = from.needed_size({nullptr, "context_length"});
    refuse_the_unknown(from, config);
    config.tie_word_embeddings = weights.find("lm_head.weight") == nullptr;

    // The vocabulary size is the length of the token list; embedding and metadata must agree.
    const auto* tokens = metadata.texts("tokenizer.ggml.tokens");
    require(tokens != nullptr, name, ": tokenizer.ggml.tokens is missing");
    require(tokens->size() <= std::numeric_limits<int>::max(), name, ": has ", tokens->size(), " tokens");
    config.vocab_size = static_cast<int>(tokens->size());
    constexpr setting vocab_size{nullptr, "vocab_size"};
    const int said = from.size(vocab_size).value_or(config.vocab_size);
    require(said == config.vocab_size, name, ": ", from.shown(vocab_size), " is ", said, "; the token list has ",
            config.vocab_size);
    config.bos_token = token_id(metadata, "tokenizer.ggml.bos_token_id");
    std::vector<int>& ends = config.eos_tokens;
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        const auto id = token_id(metadata, key);
        if (id && std::ranges::find(ends, *id) == ends.end()) ends.push_back(*id);
    }
    read_rope(from, weights, family.gguf_style, config);
    assign_local_rope(config);
    check_sizes(config, name);
    return config;
}

}  // namespace imbrex::engine
