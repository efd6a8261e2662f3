// The model configuration from Hugging Face's config.json.
#include <algorithm>
#include <imbrex/core/error.hpp>
#include <limits>
#include <set>

#include "engine/loading/families.hpp"
#include "engine/loading/json_text.hpp"
#include "engine/loading/mapped_file.hpp"
#include "engine/loading/model_config.hpp"
#include "engine/loading/unread_content.hpp"
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

class json_settings final : public model_settings {
  public:
    json_settings(const json& root, const std::string& name) : root_(root), name_(name) {}

    bool is_gguf() const override { return false; }
    const std::string& file() const override { return name_; }
    std::string shown(setting which) const override {
        return which.json == nullptr ? "a setting of GGUF files" : str_cat("\"", which.json, "\"");
    }
    std::optional<int> size(setting which) const override {
        return has(which) ? optional_size(root_, which.json, name_) : std::nullopt;
    }
    std::optional<double> real(setting which) const override {
        return has(which) ? double_member(root_, which.json, name_) : std::nullopt;
    }
    std::optional<bool> truth(setting which) const override {
        return has(which) ? bool_member(root_, which.json, name_) : std::nullopt;
    }
    std::optional<std::string> text(setting which) const override {
        return has(which) ? string_member(root_, which.json, name_) : std::nullopt;
    }
    std::optional<std::vector<int>> sizes(setting which) const override {
        return list<int>(
            which, [](const json& one) { return one.is_number_integer(); }, "a whole number");
    }
    std::optional<std::vector<std::string>> texts(setting which) const override {
        return list<std::string>(
            which, [](const json& one) { return one.is_string(); }, "a text");
    }
    bool has_tensor(const std::string&) const override { return false; }

    // The fields that were asked for.
    const std::set<std::string, std::less<>>& read() const { return read_; }

  private:
    // Whether files of this kind have the setting.
    bool has(setting which) const {
        if (which.json != nullptr) read_.insert(which.json);
        return which.json != nullptr;
    }

    // Nothing if it is no array.
    template <class T, class Is>
    std::optional<std::vector<T>> list(setting which, const Is& is_of_type, const char* what) const {
        const json* value = has(which) ? find_member(root_, which.json) : nullptr;
        if (value == nullptr || !value->is_array()) return {};
        std::vector<T> all;
        for (const json& one : *value) {
            require(is_of_type(one), name_, ": \"", which.json, "\" has ", engine::shown(one), "; it must be ", what);
            all.push_back(one.get<T>());
        }
        return all;
    }

    const json& root_;
    const std::string& name_;
    mutable std::set<std::string, std::less<>> read_;
};

std::vector<float> numbers(const json& object, const char* key, const std::string& name) {
    const json& value = member(object, key, name);
    require(value.is_array(), name, ": \"", key, "\" is ", shown(value), "; it must be an array of numbers");
    std::vector<float> all;
    for (const json& one : value) {
        require(one.is_number(), name, ": \"", key, "\" has ", shown(one), "; it must be a number");
        all.push_back(one.get<float>());
    }
    return all;
}

// Scaling of the frequencies. Phi-3 has the original context beside rope_scaling instead of within.
void read_scaling(const json& scaling, const json& config, rope_config& rope, int context, const std::string& name) {
    auto type = string_member(scaling, "rope_type", name);
    if (!type) type = string_member(scaling, "type", name);
    if (!type || *type == "default") return;
    const auto real = [&](const char* key) { return double_member(scaling, key, name); };
    const auto needed = [&](const char* key) {
        const auto value = real(key);
        require(value.has_value(), name, ": RoPE scaling ", printable(*type), ": \"", key, "\" is missing");
        return *value;
    };
    constexpr const char* original_key = "original_max_position_embeddings";
    auto original = optional_size(scaling, original_key, name);
    if (!original) original = optional_size(config, original_key, name);
    if (*type == "linear") {
        rope.scaling = rope_scaling::linear;
        rope.factor = needed("factor");
    } else if (*type == "dynamic") {
        rope.scaling = rope_scaling::dynamic;
        rope.factor = needed("factor");
        rope.original_max_position_embeddings = context;
    } else if (*type == "llama3") {
        rope.scaling = rope_scaling::llama3;
        rope.factor = needed("factor");
        rope.low_freq_factor = needed("low_freq_factor");
        rope.high_freq_factor = needed("high_freq_factor");
        rope.original_max_position_embeddings = needed_size(scaling, original_key, name);
    } else if (*type == "yarn" && !find_member(scaling, "long_factor")) {
        rope.scaling = rope_scaling::yarn;
        rope.original_max_position_embeddings = original.value_or(context);
        rope.factor = real("factor").value_or(static_cast<double>(context) / original.value_or(context));
        rope.attention_factor = real("attention_factor");
        rope.beta_fast = real("beta_fast").value_or(rope.beta_fast);
        rope.beta_slow = real("beta_slow").value_or(rope.beta_slow);
        rope.mscale = real("mscale");
        rope.mscale_all_dim = real("mscale_all_dim");
        rope.truncate = bool_member(scaling, "truncate", name).value_or(true);
    } else if (*type == "longrope" || *type == "su" || *type == "yarn") {  // Phi-3's early files name it so
        rope.scaling = rope_scaling::longrope;
        rope.original_max_position_embeddings = original.value_or(context);
        rope.factor = real("factor").value_or(static_cast<double>(context) / original.value_or(context));
        rope.attention_factor = real("attention_factor");
        rope.freq_factors = numbers(scaling, "short_factor", name);
        rope.long_freq_factors = numbers(scaling, "long_factor", name);
    } else {
        require(false, name, ": RoPE scaling ", printable(*type),
                " is not known; linear, dynamic, yarn, llama3 and longrope are");
    }
}

// Older files have rope_theta, partial_rotary_factor and rope_scaling, newer ones all of them in rope_parameters.
void read_rope_parameters(const json& parameters, const json& config, const model_config& model, rope_config& rope,
                          const std::string& name) {
    require(parameters.is_object(), name, ": \"rope_scaling\" is ", shown(parameters), "; it must be an object");
    for (const json* object : {&config, &parameters}) {
        rope.theta = double_member(*object, "rope_theta", name).value_or(rope.theta);
        if (const auto part = double_member(*object, "partial_rotary_factor", name)) {
            require(*part > 0 && *part <= 1, name, ": \"partial_rotary_factor\" is ", *part,
                    "; it must be greater than 0 and at most 1");
            rope.rotary_dim = static_cast<int>(model.head_dim * *part);
        }
    }
    read_scaling(parameters, config, rope, model.context, name);
}

// Models with two kinds of RoPE have parameters for each type of layer in newer files.
void read_rope(const json& config, model_config& model, const std::string& name) {
    const json* parameters = find_member(config, "rope_parameters");
    if (!parameters) parameters = find_member(config, "rope_scaling");
    const json none = json::object();
    const json* global = parameters ? parameters : &none;
    if (parameters && parameters->is_object() && parameters->contains("full_attention")) {
        require(model.local_rope.has_value(), name,
                ": has RoPE parameters for each type of layer; this family is known with the same in all");
        global = &member(*parameters, "full_attention", name);
        read_rope_parameters(member(*parameters, "sliding_attention", name), none, model, *model.local_rope, name);
    }
    read_rope_parameters(*global, config, model, model.rope, name);
    // The frequencies change with the context beyond the original one, so longer contexts are possible.
    if (model.rope.scaling == rope_scaling::dynamic)
        model.context = static_cast<int>(std::min(model.context * model.rope.factor, 1e9));
}

}  // namespace

model_config read_config(std::span<const std::byte> config, std::span<const std::byte> generation,
                         const std::string& name) {
    const json root = parse_json(as_text(config), name);
    require(root.is_object(), name, ": is ", shown(root), "; it must be an object");
    const auto type = string_member(root, "model_type", name);
    require(type.has_value(), name, ": \"model_type\" is missing");
    const family_description& family = family_of_model_type(*type, name);
    model_config result;
    result.vocab_size = needed_size(root, "vocab_size", name);
    result.context = optional_size(root, "max_position_embeddings", name).value_or(2048);
    result.tie_word_embeddings = bool_member(root, "tie_word_embeddings", name).value_or(family.ties_embeddings);
    const json_settings settings(root, name);
    read_family(settings, family, result);
    check_unread_fields(root, settings.read(), name);
    read_rope(root, result, name);
    assign_local_rope(result);
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
