#include "engine/loading/model_config.hpp"

#include <algorithm>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/kernels/rope/frequencies.hpp>
#include <map>

namespace imbrex::engine {

namespace {

constexpr int most_layers = 4096;
constexpr int largest_size = 1 << 24;

void check_size(int value, int most, const char* what, const std::string& name) {
    require(value >= 1 && value <= most, name, ": ", what, " is ", value, "; 1 to ", most, " are allowed");
}

void check_divisors(const std::vector<float>& divisors, int pairs, const char* what, const std::string& name) {
    require(divisors.size() == static_cast<std::size_t>(pairs), name, ": there are ", divisors.size(), " ", what,
            "; a head has ", pairs, " pairs");
    for (const float divisor : divisors) {
        require(std::isfinite(divisor) && divisor > 0, name, ": one of the ", what, " is ", divisor,
                "; it must be positive");
    }
}

void check_rope(const model_config& config, const rope_config& rope, const std::string& name) {
    const auto check_positive = [&](double value, const char* what) {
        require(std::isfinite(value) && value > 0, name, ": ", what, " is ", value, "; it must be positive");
    };
    check_positive(rope.theta, "the RoPE theta");
    check_positive(rope.factor, "the RoPE scaling factor");
    check_positive(rope.attention_factor.value_or(1), "the attention factor of the RoPE scaling");
    const int rotary_dim = config.rotary_dim(rope);
    require(rotary_dim >= 2 && rotary_dim % 2 == 0 && rotary_dim <= config.head_dim, name, ": RoPE rotates ",
            rotary_dim, " of the ", config.head_dim, " columns of a head; it must be an even number from 2 to that");
    if (rope.scaling != rope_scaling::none && rope.scaling != rope_scaling::linear)
        check_size(rope.original_max_position_embeddings, largest_size, "the original context of the RoPE scaling",
                   name);
    if (rope.scaling == rope_scaling::llama3) {
        const bool is_ordered = std::isfinite(rope.high_freq_factor) && rope.low_freq_factor > 0 &&
                                rope.high_freq_factor > rope.low_freq_factor;
        require(is_ordered, name, ": RoPE scaling has low_freq_factor ", rope.low_freq_factor, " and high_freq_factor ",
                rope.high_freq_factor, "; they must be positive, the low one lower");
    }
    if (rope.scaling == rope_scaling::yarn) {
        const bool is_ordered = std::isfinite(rope.beta_fast) && rope.beta_slow > 0 && rope.beta_fast >= rope.beta_slow;
        require(is_ordered, name, ": RoPE scaling has beta_fast ", rope.beta_fast, " and beta_slow ", rope.beta_slow,
                "; they must be positive, the slow one not greater");
    }
    if (rope.scaling == rope_scaling::dynamic)
        require(rotary_dim > 2, name, ": dynamic RoPE scaling rotates 2 columns; it needs 4");
    const bool is_long = rope.scaling == rope_scaling::longrope;
    if (is_long || !rope.freq_factors.empty())
        check_divisors(rope.freq_factors, rotary_dim / 2, is_long ? "short RoPE factors" : "RoPE frequency factors",
                       name);
    if (is_long) check_divisors(rope.long_freq_factors, rotary_dim / 2, "long RoPE factors", name);
}

void check_scale(double value, const char* what, const std::string& name) {
    require(std::isfinite(value) && value > 0, name, ": ", what, " is ", value, "; it must be positive");
}

void check_softcap(double value, const char* what, const std::string& name) {
    require(std::isfinite(value) && value >= 0, name, ": ", what, " is ", value,
            "; it must be positive, or 0 for none");
}

void check_experts(const model_config& config, const std::string& name) {
    const expert_config& experts = config.experts;
    if (!experts.given()) return;
    check_size(experts.count, moe_sizes::most_experts, "the number of experts", name);
    check_size(experts.per_token, std::min(experts.count, moe_sizes::most_chosen), "the number of experts per token",
               name);
    check_softcap(experts.swiglu_limit, "the limit of SwiGLU", name);
    require(
        config.norms == norm_place::before && !config.parallel_residual, name,
        ": has experts and norms after them, or attention beside them; experts are known with a norm before them only");
    require(config.activation == gate_activation::silu, name, ": has experts with GELU; they are known with SiLU");
}

void check_variations(const model_config& config, const std::string& name) {
    check_experts(config, name);
    check_scale(config.embedding_scale, "the factor of the embedding", name);
    check_scale(config.residual_scale, "the factor of the residual additions", name);
    check_scale(config.logits_scale, "the factor of the logits", name);
    check_scale(config.attention_scale.value_or(1), "the factor of the attention scores", name);
    check_softcap(config.logits_softcap, "the softcap of the logits", name);
    check_softcap(config.attention_softcap, "the softcap of the attention scores", name);
    require(!config.parallel_residual || config.norms == norm_place::before, name,
            ": attention and MLP are parallel; such models are known with a norm before them only");
    require(config.norm == norm_kind::rms || config.norms == norm_place::before, name,
            ": has LayerNorm after attention and MLP; it is known before them only");
    for (const layer_attention& one : config.attention_layers)
        require(one.window >= 0, name, ": the window is ", one.window, "; it must be positive");
}

}  // namespace

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
    require(std::isfinite(config.norm_eps) && config.norm_eps > 0 && config.norm_eps < 1, name,
            ": the epsilon of the norms is ", config.norm_eps, "; it must be between 0 and 1");
    check_rope(config, config.rope, name);
    if (config.local_rope) check_rope(config, *config.local_rope, name);
    check_variations(config, name);
    const auto check_token = [&](int id, const char* what) {
        require(id >= 0 && id < config.vocab_size, name, ": the ", what, " token is ", id, "; the vocabulary has ",
                config.vocab_size, " tokens");
    };
    if (config.bos_token) check_token(*config.bos_token, "beginning");
    for (const int id : config.eos_tokens) check_token(id, "end");
}

layer_norm_names norm_names(const model_config& config) {
    if (config.parallel_residual) return {"input_layernorm", "", "input_layernorm", ""};
    switch (config.norms) {
        case norm_place::before:
            return {"input_layernorm", "", "post_attention_layernorm", ""};
        case norm_place::after:
            return {"", "post_attention_layernorm", "", "post_feedforward_layernorm"};
        case norm_place::around:
            break;
    }
    return {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
}

std::vector<expected_weight> expected_weights(const model_config& config) {
    const std::int64_t hidden = config.hidden_size, intermediate = config.intermediate_size, head_dim = config.head_dim;
    const std::int64_t query = config.heads * head_dim, key = config.kv_heads * head_dim;
    const bool norms_heads = config.qk_norm == qk_norm_rows::head;
    std::vector<expected_weight> all{{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
    const auto add_norm = [&](const std::string& name) {
        all.push_back({name + ".weight", {hidden}});
        if (config.norm == norm_kind::layer) all.push_back({name + ".bias", {hidden}});
    };
    const layer_norm_names norms = norm_names(config);
    for (int layer = 0; layer < config.layers; ++layer) {
        const std::string base = "model.layers." + std::to_string(layer) + ".";
        const std::string attention = base + "self_attn.";
        if (!norms.before_attention.empty()) add_norm(base + norms.before_attention);
        all.push_back({attention + "q_proj.weight", {query, hidden}});
        all.push_back({attention + "k_proj.weight", {key, hidden}});
        all.push_back({attention + "v_proj.weight", {key, hidden}});
        if (config.qkv_bias) {
            all.push_back({attention + "q_proj.bias", {query}});
            all.push_back({attention + "k_proj.bias", {key}});
            all.push_back({attention + "v_proj.bias", {key}});
        }
        if (config.qk_norm != qk_norm_rows::none) {
            all.push_back({attention + "q_norm.weight", {norms_heads ? head_dim : query}});
            all.push_back({attention + "k_norm.weight", {norms_heads ? head_dim : key}});
        }
        if (config.attention_sinks) all.push_back({attention + "sinks", {config.heads}});
        all.push_back({attention + "o_proj.weight", {hidden, query}});
        if (config.output_bias) all.push_back({attention + "o_proj.bias", {hidden}});
        if (!norms.after_attention.empty()) add_norm(base + norms.after_attention);
        if (!norms.before_mlp.empty() && norms.before_mlp != norms.before_attention) add_norm(base + norms.before_mlp);
        const auto add_mlp = [&](const std::string& mlp, bool has_bias) {
            all.push_back({mlp + "gate_proj.weight", {intermediate, hidden}});
            all.push_back({mlp + "up_proj.weight", {intermediate, hidden}});
            all.push_back({mlp + "down_proj.weight", {hidden, intermediate}});
            if (!has_bias) return;
            all.push_back({mlp + "gate_proj.bias", {intermediate}});
            all.push_back({mlp + "up_proj.bias", {intermediate}});
            all.push_back({mlp + "down_proj.bias", {hidden}});
        };
        if (config.experts.given()) {
            all.push_back({base + "mlp.router.weight", {config.experts.count, hidden}});
            if (config.experts.bias) all.push_back({base + "mlp.router.bias", {config.experts.count}});
            for (int expert = 0; expert < config.experts.count; ++expert)
                add_mlp(base + "mlp.experts." + std::to_string(expert) + ".", config.experts.bias);
        } else {
            add_mlp(base + "mlp.", false);
        }
        if (!norms.after_mlp.empty()) add_norm(base + norms.after_mlp);
    }
    add_norm("model.norm");
    if (!config.tie_word_embeddings) all.push_back({"lm_head.weight", {config.vocab_size, hidden}});
    return all;
}

namespace {

struct packed_projection {
    std::string_view name;
    std::vector<std::string_view> parts;  // in the order of their rows
};

const std::vector<packed_projection>& packed_projections() {
    static const std::vector<packed_projection> all{
        {"self_attn.qkv_proj.", {"self_attn.q_proj.", "self_attn.k_proj.", "self_attn.v_proj."}},
        {"mlp.gate_up_proj.", {"mlp.gate_proj.", "mlp.up_proj."}}};
    return all;
}

}  // namespace

weight_set with_separate_projections(const model_config& config, const weight_set& weights, const std::string& name) {
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const expected_weight& expected : expected_weights(config)) shapes.emplace(expected.name, expected.shape);
    std::vector<weight> parts;
    const auto divide = [&](const weight& whole, std::size_t at, const packed_projection& packed) {
        std::int64_t first = 0;
        const std::int64_t rows = whole.shape.empty() ? 0 : whole.shape[0];
        const std::int64_t row_bytes = rows == 0 ? 0 : static_cast<std::int64_t>(whole.bytes.size()) / rows;
        for (const std::string_view part : packed.parts) {
            weight made = whole;
            made.name.replace(at, packed.name.size(), part);
            const auto shape = shapes.find(made.name);
            require(shape != shapes.end(), name, ": tensor \"", whole.name, "\" is not known for this model");
            made.shape[0] = shape->second[0];
            require(first + made.shape[0] <= rows, name, ": tensor \"", whole.name, "\" has ", rows,
                    " rows; the configuration asks for more");
            made.bytes = whole.bytes.subspan(static_cast<std::size_t>(first * row_bytes),
                                             static_cast<std::size_t>(made.shape[0] * row_bytes));
            first += made.shape[0];
            parts.push_back(std::move(made));
        }
        require(first == rows, name, ": tensor \"", whole.name, "\" has ", rows, " rows; the configuration asks for ",
                first);
    };
    weight_set result = weights.renamed(
        [&](const std::string& tensor) -> std::string {
            for (const packed_projection& packed : packed_projections()) {
                const std::size_t at = tensor.find(packed.name);
                if (at == std::string::npos) continue;
                divide(weights.at(tensor), at, packed);
                return {};
            }
            return tensor;
        },
        name);
    for (weight& part : parts) result.add(std::move(part), name);
    return result;
}

void check_weights(const model_config& config, const weight_set& weights, const std::string& name) {
    for (const expected_weight& expected : expected_weights(config)) {
        const weight* found = weights.find(expected.name);
        require(found != nullptr, name, ": tensor \"", expected.name, "\" is missing");
        require(found->shape == expected.shape, name, ": tensor \"", expected.name, "\" has the shape ",
                to_string(found->shape), "; the configuration asks for ", to_string(expected.shape));
    }
}

namespace {

std::vector<double> divided(std::vector<double> frequencies, const std::vector<float>& divisors) {
    for (std::size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= static_cast<double>(divisors[i]);
    return frequencies;
}

imbrex::rope_yarn yarn_of(const rope_config& rope) {
    return {.factor = rope.factor,
            .original_max_position_embeddings = static_cast<double>(rope.original_max_position_embeddings),
            .beta_fast = rope.beta_fast,
            .beta_slow = rope.beta_slow,
            .attention_factor = rope.attention_factor,
            .mscale = rope.mscale,
            .mscale_all_dim = rope.mscale_all_dim,
            .truncate = rope.truncate};
}

}  // namespace

std::vector<double> rope_inv_freq(const model_config& config, const rope_config& rope, int context) {
    const double length = context == 0 ? config.context : context, original = rope.original_max_position_embeddings;
    rope_frequencies made{.theta = rope.theta, .rotary_dim = config.rotary_dim(rope)};
    switch (rope.scaling) {
        case rope_scaling::none:
            return divided(made.inv_freq_double(), rope.freq_factors);
        case rope_scaling::linear:
            made.scaling = rope_linear{rope.factor};
            break;
        case rope_scaling::dynamic:
            if (length > original) {
                const double stretched = rope.factor * length / original - (rope.factor - 1), dim = made.rotary_dim;
                made.theta *= std::pow(stretched, dim / (dim - 2));
            }
            break;
        case rope_scaling::yarn:
            made.scaling = yarn_of(rope);
            break;
        case rope_scaling::llama3:
            made.scaling = rope_llama3{rope.factor, rope.low_freq_factor, rope.high_freq_factor, original};
            break;
        case rope_scaling::longrope:
            return divided(made.inv_freq_double(), length > original ? rope.long_freq_factors : rope.freq_factors);
    }
    return divided(made.inv_freq_double(), rope.freq_factors);
}

double rope_attention_factor(const model_config& config, const rope_config& rope) {
    if (rope.attention_factor) return *rope.attention_factor;
    if (rope.scaling == rope_scaling::yarn) {
        return static_cast<double>(
            rope_frequencies{rope.theta, config.rotary_dim(rope), yarn_of(rope)}.attention_factor());
    }
    if (rope.scaling != rope_scaling::longrope || rope.factor <= 1) return 1;
    return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_max_position_embeddings));
}

}  // namespace imbrex::engine
