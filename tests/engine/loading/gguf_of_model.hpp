// Converts a Hugging Face folder to the GGUF file that llama.cpp's converter would write: its metadata keys, tensor
// names, permuted Q and K, norms with the 1 added, precomputed RoPE factors. Written from the format, without the
// engine's table of families, so that a mistake there shows.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/loading/gguf_builder.hpp"
#include "engine/loading/safetensors.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

class gguf_converter {
  public:
    explicit gguf_converter(const std::filesystem::path& folder)
        : config_(nlohmann::json::parse(content(folder / "config.json"))),
          weights_(open_safetensors(folder)),
          type_(config_.at("model_type")),
          rope_(config_.value("rope_parameters", nlohmann::json::object())) {
        if (rope_.contains("full_attention")) {
            local_rope_ = rope_.at("sliding_attention");
            rope_ = nlohmann::json(rope_.at("full_attention"));
        }
    }

    // Why there is no such GGUF file; empty if there is one.
    std::string cannot() const {
        if (type_ == "mistral" || type_ == "ministral") return "the architecture llama has no window";
        if (type_ == "qwen2" && config_.value("use_sliding_window", false)) return "the architecture has no window";
        if (!config_.value("norm_topk_prob", true)) return "the architecture divides by the sum of the chosen";
        if (rope_.value("rope_type", "") == "dynamic") return "there is no dynamic scaling";
        return rope_.contains("mscale") ? "there are no mscale and truncate" : "";
    }

    std::string convert() {
        builder_.string("general.architecture", architecture());
        add_sizes();
        add_family();
        add_rope();
        add_tokens();
        for (const weight& one : weights_.all()) {
            if (one.name.find(".experts.") == std::string::npos) add_tensor(one);
        }
        if (experts() > 0) add_experts();
        return builder_.build();
    }

    // From now on each expert of Mixtral has tensors of its own.
    void separate_experts() { separates_experts_ = true; }

    // The file with one more tensor.
    const gguf_builder& with_tensor(const std::string& name, const std::vector<std::int64_t>& dimensions,
                                    const std::vector<float>& values) {
        add_floats(name, dimensions, values);
        return builder_;
    }

  private:
    std::string architecture() const {
        static const std::vector<std::pair<std::string, std::string>> others{{"gemma3_text", "gemma3"},
                                                                             {"olmo3", "olmo2"},
                                                                             {"mixtral", "llama"},
                                                                             {"qwen3_moe", "qwen3moe"},
                                                                             {"gpt_oss", "gpt-oss"}};
        for (const auto& [type, name] : others) {
            if (type_ == type) return name;
        }
        return type_;
    }
    std::string key(const std::string& name) const { return architecture() + "." + name; }
    bool is_gemma() const { return type_.starts_with("gemma"); }
    bool permutes() const { return type_ == "llama" || type_ == "smollm3" || type_ == "granite" || type_ == "mixtral"; }
    int experts() const { return config_.value("num_local_experts", 0); }
    int number(const char* name) const { return config_.at(name).get<int>(); }
    int head_dim() const {
        return config_.contains("head_dim") ? number("head_dim")
                                            : number("hidden_size") / number("num_attention_heads");
    }
    int rotary_dim() const {
        return static_cast<int>(head_dim() * rope_.value("partial_rotary_factor", type_ == "stablelm" ? 0.25 : 1.0));
    }

    void whole(const std::string& name, int value) { builder_.whole(key(name), static_cast<std::uint32_t>(value)); }
    void real(const std::string& name, double value) { builder_.real(key(name), static_cast<float>(value)); }
    void real_from(const std::string& name, const char* json_name) {
        if (config_.contains(json_name) && !config_.at(json_name).is_null()) real(name, config_.at(json_name));
    }

    void add_sizes() {
        whole("block_count", number("num_hidden_layers"));
        whole("embedding_length", number("hidden_size"));
        whole("feed_forward_length", number("intermediate_size"));
        whole("attention.head_count", number("num_attention_heads"));
        whole("attention.head_count_kv", number("num_key_value_heads"));
        whole("attention.key_length", head_dim());
        whole("attention.value_length", head_dim());
        whole("context_length", number("max_position_embeddings"));
        if (type_ == "stablelm") {
            real_from("attention.layer_norm_epsilon", "layer_norm_eps");
        } else {
            real_from("attention.layer_norm_rms_epsilon", "rms_norm_eps");
        }
    }

    void add_family() {
        real_from("attn_logit_softcapping", "attn_logit_softcapping");
        real_from("final_logit_softcapping", "final_logit_softcapping");
        real_from("embedding_scale", "embedding_multiplier");
        real_from("residual_scale", "residual_multiplier");
        real_from("attention.scale", "attention_multiplier");
        real_from("logit_scale", "logits_scaling");
        if (config_.contains("query_pre_attn_scalar"))
            real("attention.scale", 1 / std::sqrt(config_.at("query_pre_attn_scalar").get<double>()));
        if (is_gemma() || type_ == "phi3" || type_ == "olmo3") {
            if (config_.contains("sliding_window")) whole("attention.sliding_window", number("sliding_window"));
        }
        if (config_.contains("layer_types") && local_rope_) {
            std::string slides = raw(std::uint32_t{7}) + raw(std::uint64_t{config_.at("layer_types").size()});
            for (const std::string type : config_.at("layer_types"))
                slides += raw(std::uint8_t{type == "sliding_attention"});
            builder_.value(key("attention.sliding_window_pattern"), 9, slides);
        }
        if (experts() > 0) {
            whole("expert_count", experts());
            whole("expert_used_count", number("num_experts_per_tok"));
        }
        if (type_ == "qwen3_moe") whole("expert_feed_forward_length", number("moe_intermediate_size"));
        if (type_ == "gpt_oss") {
            whole("expert_feed_forward_length", number("intermediate_size"));
            whole("attention.sliding_window", number("sliding_window"));
        }
        if (type_ == "stablelm")
            builder_.truth(key("use_parallel_residual"), config_.at("use_parallel_residual").get<bool>());
    }

    void add_rope() {
        whole("rope.dimension_count", rotary_dim());
        real("rope.freq_base", rope_.value("rope_theta", 10000.0));
        if (local_rope_) real("rope.freq_base_swa", local_rope_->at("rope_theta"));
        const std::string type = rope_.value("rope_type", "default");
        if (type == "linear" || type == "yarn") {
            builder_.string(key("rope.scaling.type"), type);
            real("rope.scaling.factor", rope_.at("factor"));
        }
        if (type == "yarn" || type == "longrope")
            whole("rope.scaling.original_context_length", rope_.at("original_max_position_embeddings").get<int>());
        if (type == "llama3") add_floats("rope_freqs.weight", {rotary_dim() / 2}, llama3_divisors());
        if (type == "longrope") {
            const double original = rope_.at("original_max_position_embeddings");
            const double factor = number("max_position_embeddings") / original;
            real("rope.scaling.attn_factor", std::sqrt(1 + std::log(factor) / std::log(original)));
            add_floats("rope_factors_short.weight", {rotary_dim() / 2}, rope_.at("short_factor"));
            add_floats("rope_factors_long.weight", {rotary_dim() / 2}, rope_.at("long_factor"));
        }
    }

    std::vector<float> llama3_divisors() const {
        const double original = rope_.at("original_max_position_embeddings"), factor = rope_.at("factor");
        const double low = rope_.at("low_freq_factor"), high = rope_.at("high_freq_factor");
        std::vector<float> divisors;
        for (int pair = 0; pair < rotary_dim() / 2; ++pair) {
            const double theta = rope_.at("rope_theta").get<double>();
            const double wave = 2 * std::numbers::pi * std::pow(theta, 2.0 * pair / rotary_dim());
            const double kept = (original / wave - low) / (high - low);
            divisors.push_back(static_cast<float>(wave < original / high  ? 1
                                                  : wave > original / low ? factor
                                                                          : 1 / ((1 - kept) / factor + kept)));
        }
        return divisors;
    }

    void add_tokens() {
        const auto count = static_cast<std::size_t>(number("vocab_size"));
        std::vector<std::string> tokens;
        for (std::size_t id = 0; id < count; ++id)
            tokens.push_back(id < 26 ? std::string(1, static_cast<char>('a' + id)) : "more" + std::to_string(id));
        builder_.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", tokens);
        builder_.numbers<float>("tokenizer.ggml.scores", 6, std::vector<float>(count));
    }

    static void replace(std::string& name, const std::string& from, const std::string& to) {
        if (const std::size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    }

    std::string name_of_tensor(std::string name) const {
        const bool norms_after = is_gemma() ? type_ != "gemma" : architecture() == "olmo2" || type_ == "gpt_oss";
        const std::vector<std::pair<std::string, std::string>> pairs{
            {"model.layers.", "blk."},
            {"model.embed_tokens", "token_embd"},
            {"model.norm", "output_norm"},
            {"lm_head", "output"},
            {"input_layernorm", "attn_norm"},
            {"post_attention_layernorm", norms_after ? "post_attention_norm" : "ffn_norm"},
            {"pre_feedforward_layernorm", "ffn_norm"},
            {"post_feedforward_layernorm", "post_ffw_norm"},
            {"self_attn.q_norm", "attn_q_norm"},
            {"self_attn.k_norm", "attn_k_norm"},
            {"self_attn.qkv_proj", "attn_qkv"},
            {"self_attn.q_proj", "attn_q"},
            {"self_attn.k_proj", "attn_k"},
            {"self_attn.v_proj", "attn_v"},
            {"self_attn.o_proj", "attn_output"},
            {"self_attn.sinks", "attn_sinks.weight"},
            {"block_sparse_moe.gate", "ffn_gate_inp"},
            {"mlp.router", "ffn_gate_inp"},
            {"mlp.gate.", "ffn_gate_inp."},
            {"mlp.gate_up_proj", "ffn_up"},
            {"mlp.gate_proj", "ffn_gate"},
            {"mlp.up_proj", "ffn_up"},
            {"mlp.down_proj", "ffn_down"}};
        for (const auto& [from, to] : pairs) replace(name, from, to);
        return name;
    }

    // Columns of a half-split pair become neighbours: row i of the first half, then row i of the second.
    std::vector<float> permuted(const std::vector<float>& values, std::size_t row) const {
        const auto head = static_cast<std::size_t>(head_dim()), half = head / 2;
        std::vector<float> result;
        for (std::size_t first = 0; first < values.size() / row; first += head) {
            for (std::size_t i = 0; i < head; ++i) {
                const std::size_t from = first + i / 2 + i % 2 * half;
                result.insert(result.end(), values.begin() + static_cast<std::ptrdiff_t>(from * row),
                              values.begin() + static_cast<std::ptrdiff_t>((from + 1) * row));
            }
        }
        return result;
    }

    void add_tensor(const weight& one) {
        std::vector<float> values = to_floats(one);
        const bool is_query_or_key =
            one.name.find("q_proj") != std::string::npos || one.name.find("k_proj") != std::string::npos;
        if (permutes() && is_query_or_key)
            values = permuted(values, one.shape.size() == 1 ? 1 : static_cast<std::size_t>(one.shape[1]));
        if (is_gemma() && one.name.ends_with("norm.weight")) {
            for (float& value : values) value += 1;
        }
        add_floats(name_of_tensor(one.name), {one.shape.rbegin(), one.shape.rend()}, values);
    }

    // One tensor for all experts of a layer: [experts, rows, columns], and [experts, rows] of biases.
    void add_experts() {
        for (int layer = 0; layer < number("num_hidden_layers"); ++layer) {
            const std::string of = "model.layers." + std::to_string(layer) + ".", to = "blk." + std::to_string(layer);
            if (type_ != "gpt_oss") {
                stack_experts(of, to);
            } else if (weights_.find(of + "mlp.experts.down_proj_blocks") != nullptr) {
                stack_mxfp4(of + "mlp.experts.", to);
            } else {
                stack_gpt_oss(of + "mlp.experts.", to);
            }
        }
    }

    void stack_experts(const std::string& of, const std::string& to) {
        const bool is_mixtral = type_ == "mixtral";
        if (separates_experts_) return add_separate_experts(of, to);
        for (const auto& [own, mixtral, name] : {std::tuple{"gate_proj", "w1", ".ffn_gate_exps.weight"},
                                                 {"up_proj", "w3", ".ffn_up_exps.weight"},
                                                 {"down_proj", "w2", ".ffn_down_exps.weight"}}) {
            std::vector<float> all;
            std::vector<std::int64_t> shape;
            for (int expert = 0; expert < experts(); ++expert) {
                const weight& one =
                    weights_.at(of + (is_mixtral ? "block_sparse_moe" : "mlp") + ".experts." + std::to_string(expert) +
                                "." + (is_mixtral ? mixtral : own) + ".weight");
                const std::vector<float> values = to_floats(one);
                all.insert(all.end(), values.begin(), values.end());
                shape = one.shape;
            }
            add_floats(to + name, {shape[1], shape[0], experts()}, all);
        }
    }

    // As in early files of Mixtral.
    void add_separate_experts(const std::string& of, const std::string& to) {
        for (const auto& [from, name] : {std::pair{"w1", "gate"}, {"w3", "up"}, {"w2", "down"}}) {
            for (int expert = 0; expert < experts(); ++expert) {
                const std::string number = "." + std::to_string(expert) + ".";
                const weight& one = weights_.at(of + "block_sparse_moe.experts" + number + from + ".weight");
                add_floats(to + ".ffn_" + name + number + "weight", {one.shape[1], one.shape[0]}, to_floats(one));
            }
        }
    }

    // The file has blocks [experts, rows, groups, 16], in which neighbours share a byte, and scales [experts, rows, groups].
    void stack_mxfp4(const std::string& of, const std::string& to) {
        for (const auto& [from, first, step, name] : {std::tuple{"gate_up_proj", 0, 2, ".ffn_gate_exps"},
                                                      {"gate_up_proj", 1, 2, ".ffn_up_exps"},
                                                      {"down_proj", 0, 1, ".ffn_down_exps"}}) {
            const weight &blocks = weights_.at(of + from + "_blocks"), &scales = weights_.at(of + from + "_scales");
            const std::vector<float> biases = to_floats(weights_.at(of + from + "_bias"));
            const std::int64_t rows = blocks.shape[1], groups = blocks.shape[2];
            std::string all;
            std::vector<float> bias;
            for (std::int64_t row = first; row < blocks.shape[0] * rows; row += step) {
                bias.push_back(biases[static_cast<std::size_t>(row)]);
                for (std::int64_t group = row * groups; group < (row + 1) * groups; ++group) {
                    all += static_cast<char>(scales.bytes[static_cast<std::size_t>(group)]);
                    all += ggml_nibbles(blocks.bytes.subspan(static_cast<std::size_t>(16 * group), 16));
                }
            }
            align();
            builder_.tensor(to + name + ".weight", {32 * groups, rows / step, blocks.shape[0]}, 39,
                            builder_.data.size());
            builder_.data += all;
            add_floats(to + name + ".bias", {rows / step, blocks.shape[0]}, bias);
        }
    }

    static std::string ggml_nibbles(std::span<const std::byte> pairs) {
        int elements[32];
        for (std::size_t i = 0; i < 16; ++i) {
            elements[2 * i] = std::to_integer<int>(pairs[i]) % 16;
            elements[2 * i + 1] = std::to_integer<int>(pairs[i]) / 16;
        }
        std::string bytes;
        for (std::size_t i = 0; i < 16; ++i) bytes += static_cast<char>(elements[i] + 16 * elements[i + 16]);
        return bytes;
    }

    // The file has [experts, columns, rows] and [experts, rows]; rows of gate and up alternate.
    void stack_gpt_oss(const std::string& of, const std::string& to) {
        for (const auto& [from, first, step, name] : {std::tuple{"gate_up_proj", 0, 2, ".ffn_gate_exps"},
                                                      {"gate_up_proj", 1, 2, ".ffn_up_exps"},
                                                      {"down_proj", 0, 1, ".ffn_down_exps"}}) {
            const weight& whole = weights_.at(of + from);
            const std::vector<float> values = to_floats(whole), biases = to_floats(weights_.at(of + from + "_bias"));
            const std::int64_t count = whole.shape[0], columns = whole.shape[1], rows = whole.shape[2];
            std::vector<float> all, bias;
            for (std::int64_t expert = 0; expert < count; ++expert) {
                for (std::int64_t row = first; row < rows; row += step) {
                    bias.push_back(biases[static_cast<std::size_t>(expert * rows + row)]);
                    for (std::int64_t column = 0; column < columns; ++column)
                        all.push_back(values[static_cast<std::size_t>((expert * columns + column) * rows + row)]);
                }
            }
            add_floats(to + name + ".weight", {columns, rows / step, count}, all);
            add_floats(to + name + ".bias", {rows / step, count}, bias);
        }
    }

    void align() {
        builder_.data.resize((builder_.data.size() + builder_.alignment - 1) / builder_.alignment * builder_.alignment);
    }

    void add_floats(const std::string& name, const std::vector<std::int64_t>& dimensions,
                    const std::vector<float>& values) {
        align();
        builder_.tensor(name, dimensions, 0, builder_.data.size());
        for (const float value : values) builder_.data += raw(value);
    }

    nlohmann::json config_;
    weight_set weights_;
    std::string type_;
    nlohmann::json rope_;
    std::optional<nlohmann::json> local_rope_;
    gguf_builder builder_;
    bool separates_experts_ = false;
};

}  // namespace imbrex::engine::test
