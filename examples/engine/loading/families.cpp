#include "engine/loading/families.hpp"

#include <algorithm>
#include <cmath>
#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr setting window{"sliding_window", "attention.sliding_window"};

// The file says from which layer on.
void window_in_last_layers(const model_settings& from, model_config& config) {
    if (!from.truth({"use_sliding_window"}).value_or(false)) return;
    const int first = from.size({"max_window_layers"}).value_or(28);
    config.set_windows(from.size(window).value_or(4096), [&](int layer) { return layer >= first; });
}

void window_in_all_layers(const model_settings& from, model_config& config) {
    if (const auto tokens = from.size(window)) config.set_windows(*tokens, [](int) { return true; });
}

// All but the last layer of each group have the window. GGUF files may list the layers instead.
void window_in_groups(const model_settings& from, model_config& config, int default_group, int default_tokens = 4096) {
    constexpr setting pattern{"sliding_window_pattern", "attention.sliding_window_pattern"};
    const int tokens = from.size(window).value_or(default_tokens);
    if (const auto listed = from.sizes(pattern)) {
        require(listed->size() == static_cast<std::size_t>(config.layers), from.file(), ": ", from.shown(pattern),
                " has ", listed->size(), " elements; there are ", config.layers, " layers");
        return config.set_windows(tokens, [&](int layer) { return (*listed)[static_cast<std::size_t>(layer)] != 0; });
    }
    const int group = from.size(pattern).value_or(default_group);
    require(group > 0, from.file(), ": ", from.shown(pattern), " is 0; it must be positive");
    config.set_windows(tokens, [&](int layer) { return (layer + 1) % group != 0; });
}

void qwen2(const model_settings& from, model_config& config) {
    config.qkv_bias = true;
    window_in_last_layers(from, config);
}

void qwen3(const model_settings& from, model_config& config) {
    config.qk_norm = qk_norm_rows::head;
    window_in_last_layers(from, config);
}

// The file lists the layers with RoPE, or every fourth layer has none.
void smollm3(const model_settings& from, model_config& config) {
    const auto has_rope = from.sizes({"no_rope_layers"});
    require(!has_rope || has_rope->size() == static_cast<std::size_t>(config.layers), from.file(), ": ",
            from.shown({"no_rope_layers"}), " has ", has_rope ? has_rope->size() : 0, " elements; there are ",
            config.layers, " layers");
    const int interval = from.size({"no_rope_layer_interval"}).value_or(4);
    require(has_rope || interval > 0, from.file(), ": ", from.shown({"no_rope_layer_interval"}),
            " is 0; it must be positive");
    const auto rotates = [&](int layer) {
        return has_rope ? (*has_rope)[static_cast<std::size_t>(layer)] != 0 : (layer + 1) % interval != 0;
    };
    const bool has_window = from.truth({"use_sliding_window"}).value_or(false) && from.size(window);
    config.set_windows(has_window ? *from.size(window) : 0, [&](int layer) { return !rotates(layer); });
    for (int i = 0; i < config.layers; ++i)
        config.attention_layers[static_cast<std::size_t>(i)].rope = rotates(i) ? layer_rope::global : layer_rope::none;
}

void gemma(const model_settings& from, model_config& config) {
    config.activation = gate_activation::gelu_tanh;
    config.norm_weights_from_one = !from.is_gguf();  // converters add the 1
    config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
    from.refuse({"use_bidirectional_attention", nullptr});
}

// GGUF files rarely have the scale of the scores. It is that of a head, except in the largest model of a generation.
double gemma_attention_scale(const model_settings& from, const model_config& config, int layers_of_largest) {
    if (const auto scale = from.real({nullptr, "attention.scale"})) return *scale;
    const bool is_largest = from.is_gguf() && config.layers == layers_of_largest;
    require(config.heads > 0, from.file(), ": the number of heads is 0; it must be positive");
    const double elements = is_largest ? config.hidden_size / config.heads : config.head_dim;
    return 1 / std::sqrt(from.real({"query_pre_attn_scalar"}).value_or(elements));
}

void gemma2(const model_settings& from, model_config& config) {
    gemma(from, config);
    config.norms = norm_place::around;
    config.attention_scale = gemma_attention_scale(from, config, 46);
    config.attention_softcap = from.real({"attn_logit_softcapping", "attn_logit_softcapping"}).value_or(0);
    config.logits_softcap = from.real({"final_logit_softcapping", "final_logit_softcapping"}).value_or(0);
    window_in_groups(from, config, 2);
}

void gemma3(const model_settings& from, model_config& config) {
    gemma2(from, config);
    config.qk_norm = qk_norm_rows::head;
    config.attention_scale = gemma_attention_scale(from, config, 62);
    window_in_groups(from, config, 6);
    config.rope.theta = 1e6;
    config.local_rope.emplace();
    config.local_rope->theta = from.real({"rope_local_base_freq", "rope.freq_base_swa"}).value_or(10000);
}

void granite(const model_settings& from, model_config& config) {
    config.embedding_scale = from.real({"embedding_multiplier", "embedding_scale"}).value_or(1);
    config.residual_scale = from.real({"residual_multiplier", "residual_scale"}).value_or(1);
    config.attention_scale = from.real({"attention_multiplier", "attention.scale"}).value_or(1);
    const double divisor = from.real({"logits_scaling", "logit_scale"}).value_or(1);
    require(divisor != 0, from.file(), ": ", from.shown({"logits_scaling", "logit_scale"}),
            " is 0; it must be positive");
    config.logits_scale = 1 / divisor;
    if (from.truth({nullptr, "rope.scaling.finetuned"}).value_or(true)) return;
    config.attention_layers.assign(static_cast<std::size_t>(config.layers), {.window = 0, .rope = layer_rope::none});
}

// The window is OLMo 3's. Its RoPE scaling is for the layers without one.
void olmo3_window(const model_settings& from, model_config& config) {
    window_in_groups(from, config, 4);
    config.local_rope.emplace().theta = from.real({nullptr, "rope.freq_base_swa"}).value_or(0);
}

void olmo2(const model_settings& from, model_config& config) {
    config.norms = norm_place::after;
    config.qk_norm = qk_norm_rows::projection;
    if (from.is_gguf() && from.size(window).value_or(0) > 0) olmo3_window(from, config);
}

void olmo3(const model_settings& from, model_config& config) {
    olmo2(from, config);
    if (!from.is_gguf()) olmo3_window(from, config);
}

void stablelm(const model_settings& from, model_config& config) {
    config.norm = norm_kind::layer;
    config.norm_eps = from.needed_real({"layer_norm_eps", "attention.layer_norm_epsilon"});
    config.qkv_bias = config.qkv_bias || from.truth({"use_qkv_bias"}).value_or(false);
    config.parallel_residual = from.truth({"use_parallel_residual", "use_parallel_residual"}).value_or(false);
    if (from.is_gguf()) config.parallel_residual = !from.has_tensor("model.layers.0.post_attention_layernorm.weight");
    config.rope.rotary_dim = config.head_dim / 4;
    from.refuse({"qk_layernorm"});
}

// Experts in every layer, each of the size that `size` names, or else of the intermediate size.
void read_experts(const model_settings& from, model_config& config, setting size) {
    constexpr setting per_token{"num_experts_per_tok", "expert_used_count"}, count{"num_local_experts", "expert_count"};
    const auto by_other_name = from.size({"num_experts"});
    config.experts.count = by_other_name ? *by_other_name : from.needed_size(count);
    config.experts.per_token = from.needed_size(per_token);
    require(config.experts.count > 0, from.file(), ": ", from.shown(count), " is 0; this family has experts");
    config.intermediate_size = from.size(size).value_or(config.intermediate_size);
}

void qwen3_moe(const model_settings& from, model_config& config) {
    qwen3(from, config);
    read_experts(from, config, {"moe_intermediate_size", "expert_feed_forward_length"});
    config.experts.weights_of_chosen = from.truth({"norm_topk_prob", "expert_weights_norm"}).value_or(from.is_gguf());
    const auto dense = from.sizes({"mlp_only_layers"});
    const int interval = from.size({"decoder_sparse_step"}).value_or(1);
    require(
        (!dense || dense->empty()) && interval == 1, from.file(),
        ": \"mlp_only_layers\" or \"decoder_sparse_step\" asks for layers without experts; experts are known in all "
        "layers only");
}

void mixtral(const model_settings& from, model_config& config) {
    window_in_all_layers(from, config);
    read_experts(from, config, {nullptr, "expert_feed_forward_length"});
}

// GGUF files of Mixtral name Llama's architecture.
void llama(const model_settings& from, model_config& config) {
    if (from.size({nullptr, "expert_count"}).value_or(0) > 0) mixtral(from, config);
}

void gpt_oss(const model_settings& from, model_config& config) {
    read_experts(from, config, {nullptr, "expert_feed_forward_length"});
    config.experts.bias = true;
    config.experts.swiglu_limit = from.real({"swiglu_limit"}).value_or(7);
    config.attention_sinks = true;
    if (!from.is_gguf()) config.qkv_bias = config.output_bias = from.truth({"attention_bias"}).value_or(true);
    window_in_groups(from, config, 2, 128);
    config.rope.truncate = false;  // YaRN's; config.json says so
    const int again = from.size({"experts_per_token"}).value_or(config.experts.per_token);
    require(again == config.experts.per_token, from.file(), ": \"experts_per_token\" is ", again,
            "; \"num_experts_per_tok\" is ", config.experts.per_token);
}

const std::vector<family_description>& table() {
    constexpr auto interleaved = rope_style::interleaved, half_split = rope_style::half_split;
    static const std::vector<std::pair<std::string_view, std::string_view>> own_post_norms{
        {"ffn_norm.", "pre_feedforward_layernorm."},
        {"post_attention_norm.", "post_attention_layernorm."},
        {"post_ffw_norm.", "post_feedforward_layernorm."}};
    static const std::vector<family_description> all{
        {model_family::llama, "llama", "llama", interleaved, llama},
        {model_family::qwen2, "qwen2", "qwen2", half_split, qwen2},
        {model_family::qwen3, "qwen3", "qwen3", half_split, qwen3},
        {model_family::mistral, "mistral", nullptr, interleaved, window_in_all_layers},
        {model_family::ministral, "ministral", nullptr, interleaved, window_in_all_layers},
        {model_family::smollm3, "smollm3", "smollm3", interleaved, smollm3, {}, true},
        {model_family::gemma, "gemma", "gemma", half_split, gemma, {}, true},
        {model_family::gemma2, "gemma2", "gemma2", half_split, gemma2, own_post_norms, true},
        {model_family::gemma3, "gemma3_text", "gemma3", half_split, gemma3, own_post_norms, true},
        {model_family::phi3,
         "phi3",
         "phi3",
         half_split,
         window_in_all_layers,
         {{"attn_qkv.", "self_attn.qkv_proj."}, {"ffn_up.", "mlp.gate_up_proj."}}},
        {model_family::granite, "granite", "granite", interleaved, granite},
        {model_family::olmo2, "olmo2", "olmo2", half_split, olmo2, own_post_norms},
        {model_family::olmo3, "olmo3", nullptr, half_split, olmo3},
        {model_family::stablelm, "stablelm", "stablelm", half_split, stablelm},
        {model_family::qwen3_moe, "qwen3_moe", "qwen3moe", half_split, qwen3_moe},
        {model_family::mixtral, "mixtral", nullptr, interleaved, mixtral},
        {model_family::gpt_oss,
         "gpt_oss",
         "gpt-oss",
         half_split,
         gpt_oss,
         {{"post_attention_norm.", "post_attention_layernorm."}}},
    };
    return all;
}

// The known names, for messages.
template <class NameOf>
std::string list_of(const NameOf& name_of_family) {
    std::string text;
    for (const family_description& one : table()) {
        if (const char* name = name_of_family(one)) text += (text.empty() ? "" : ", ") + std::string(name);
    }
    return text;
}

template <class NameOf>
const family_description& find(const std::string& name, const NameOf& name_of_family, const std::string& file) {
    const auto found = std::ranges::find_if(table(), [&](const family_description& one) {
        const char* own = name_of_family(one);
        return own != nullptr && name == own;
    });
    require(found != table().end(), file, ": architecture ", printable(name),
            " is not known; these are: ", list_of(name_of_family));
    return *found;
}

gate_activation activation_named(const std::string& name, gate_activation expected, const model_settings& from) {
    if (name == "silu" || name == "swish") return gate_activation::silu;
    if (name == "gelu_pytorch_tanh" || name == "gelu_new") return gate_activation::gelu_tanh;
    // Early files of Gemma say "gelu" and mean the approximation.
    require(name == "gelu" && expected == gate_activation::gelu_tanh, from.file(), ": \"hidden_act\" is ",
            printable(name), "; silu and gelu_pytorch_tanh are known");
    return expected;
}

void read_layer_types(const model_settings& from, model_config& config) {
    const auto types = from.texts({"layer_types"});
    if (!types) return;
    require(types->size() == static_cast<std::size_t>(config.layers), from.file(), ": \"layer_types\" has ",
            types->size(), " elements; it must name a type for each of the ", config.layers, " layers");
    const int tokens = from.size(window).value_or(0);
    for (const std::string& type : *types) {
        require(type == "full_attention" || type == "sliding_attention", from.file(), ": \"layer_types\" names ",
                printable(type), "; full_attention and sliding_attention are known");
        require(type == "full_attention" || tokens > 0, from.file(),
                ": \"layer_types\" names sliding_attention; \"sliding_window\" is missing");
    }
    config.set_windows(tokens,
                       [&](int layer) { return (*types)[static_cast<std::size_t>(layer)] != "full_attention"; });
}

}  // namespace

std::span<const family_description> all_families() {
    return table();
}

const family_description& family_of_model_type(const std::string& model_type, const std::string& file) {
    return find(
        model_type, [](const family_description& one) { return one.model_type; }, file);
}

const family_description& family_of_architecture(const std::string& architecture, const std::string& file) {
    return find(
        architecture, [](const family_description& one) { return one.architecture; }, file);
}

const family_description& description_of(model_family family) {
    return *std::ranges::find(table(), family, &family_description::family);
}

const char* name_of(model_family family) {
    return description_of(family).model_type;
}

void read_family(const model_settings& from, const family_description& family, model_config& config) {
    config.family = family.family;
    config.layers = from.needed_size({"num_hidden_layers", "block_count"});
    config.hidden_size = from.needed_size({"hidden_size", "embedding_length"});
    config.intermediate_size = from.needed_size({"intermediate_size", "feed_forward_length"});
    config.heads = from.needed_size({"num_attention_heads", "attention.head_count"});
    config.kv_heads = from.size({"num_key_value_heads", "attention.head_count_kv"}).value_or(config.heads);
    constexpr setting head_dim{"head_dim", "attention.key_length"};
    if (const auto given = from.size(head_dim)) {
        config.head_dim = *given;
    } else {
        const setting hidden{"hidden_size", "embedding_length"};
        require(config.heads > 0 && config.hidden_size % config.heads == 0, from.file(), ": ", from.shown(hidden),
                " is ", config.hidden_size, " for ", config.heads, " heads; without ", from.shown(head_dim),
                " it must be a multiple");
        config.head_dim = config.hidden_size / config.heads;
    }
    // Otherwise memory for the layers would be allocated before the sizes are checked.
    require(config.layers <= 4096, from.file(), ": the number of layers is ", config.layers, "; 1 to 4096 are allowed");
    const bool has_bias = from.truth({"attention_bias"}).value_or(false);
    config.qkv_bias = has_bias || from.has_tensor("model.layers.0.self_attn.q_proj.bias") ||
                      from.has_tensor("model.layers.0.self_attn.qkv_proj.bias");
    config.output_bias = has_bias || from.has_tensor("model.layers.0.self_attn.o_proj.bias");
    from.refuse({"mlp_bias"});
    if (family.describe != nullptr) family.describe(from, config);
    if (config.norm == norm_kind::rms)
        config.norm_eps = from.needed_real({"rms_norm_eps", "attention.layer_norm_rms_epsilon"});
    auto activation = from.text({"hidden_activation"});
    const auto older_name = from.text({"hidden_act"});
    if (!activation) activation = older_name;
    if (activation) config.activation = activation_named(*activation, config.activation, from);
    read_layer_types(from, config);
}

void assign_local_rope(model_config& config) {
    if (!config.local_rope) return;
    if (config.local_rope->theta == 0) config.local_rope->theta = config.rope.theta;
    for (layer_attention& one : config.attention_layers) {
        if (one.window > 0) one.rope = layer_rope::local;
    }
}

}  // namespace imbrex::engine
