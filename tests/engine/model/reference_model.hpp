// A float64 reference of the model for tests: every family of model_config.hpp, as in the papers and Hugging Face's
// code, in plain loops, without KV cache, batches or the library. It reads the weights as stored in the file and
// computes RoPE frequencies by itself, so it shares no code with the engine. Optionally it quantises the inputs of some
// matrices to int8, as the engine does for int8 dot products.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/loading/model_config.hpp"
#include "engine/loading/weights.hpp"

namespace imbrex::engine::test {

using row = std::vector<double>;
using rows = std::vector<row>;  // one per position

class reference_model {
  public:
    using matrix_choice = std::function<bool(const weight&)>;

    reference_model(const model_config& config, const weight_set& weights, matrix_choice rounds_inputs = {})
        : config_(config),
          weights_(weights),
          rounds_inputs_(std::move(rounds_inputs)),
          frequencies_(frequencies_of(config.rope)) {
        if (config.local_rope) local_frequencies_ = frequencies_of(*config.local_rope);
    }

    // Row i: the hidden state of token i behind the last norm.
    rows hidden_states(std::span<const int> tokens) const {
        rows x = embedded(tokens);
        for (int layer = 0; layer < config_.layers; ++layer) {
            const std::string base = "model.layers." + std::to_string(layer) + ".";
            const layer_norm_names norms = norm_names(config_);
            const auto attended = [&] {
                return normed(attention(normed(x, base, norms.before_attention), base + "self_attn.", layer), base,
                              norms.after_attention);
            };
            const auto fed = [&] {
                return normed(feed_forward(normed(x, base, norms.before_mlp), base + "mlp."), base, norms.after_mlp);
            };
            if (config_.parallel_residual) {
                rows both = attended();
                add(both, fed(), 1);
                add(x, both, config_.residual_scale);
            } else {
                add(x, attended(), config_.residual_scale);
                add(x, fed(), config_.residual_scale);
            }
        }
        return normed(x, "model.", "norm");
    }

    // Row i: logits after tokens[0 .. i].
    rows logits(std::span<const int> tokens) const {
        rows result = projected(hidden_states(tokens), config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
        for (row& one : result) {
            for (double& logit : one) logit = capped(logit * config_.logits_scale, config_.logits_softcap);
        }
        return result;
    }

    const row& frequencies() const { return frequencies_; }

  private:
    static std::size_t size(int value) { return static_cast<std::size_t>(value); }

    static void add(rows& x, const rows& more, double factor) {
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t i = 0; i < x[position].size(); ++i) x[position][i] += factor * more[position][i];
        }
    }

    static double capped(double value, double cap) { return cap == 0 ? value : cap * std::tanh(value / cap); }

    rows embedded(std::span<const int> tokens) const {
        const weight& table = weights_.at("model.embed_tokens.weight");
        rows result;
        for (const int token : tokens) {
            std::vector<float> values(size(config_.hidden_size));
            to_floats(table, token, 1, values);
            result.emplace_back(values.begin(), values.end());
            for (double& value : result.back()) value *= config_.embedding_scale;
        }
        return result;
    }

    std::vector<float> norm_weight(const std::string& name) const {
        std::vector<float> weight = to_floats(weights_.at(name + ".weight"));
        if (config_.norm_weights_from_one) {
            for (float& one : weight) one += 1;
        }
        return weight;
    }

    // RMSNorm.
    void norm(std::span<double> x, std::span<const float> scale) const {
        double squares = 0;
        for (const double value : x) squares += value * value;
        const double length = std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_eps);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] / length * static_cast<double>(scale[i]);
    }

    void layer_norm(row& x, std::span<const float> weight, std::span<const float> bias) const {
        double mean = 0, squares = 0;
        for (const double value : x) mean += value / static_cast<double>(x.size());
        for (const double value : x) squares += (value - mean) * (value - mean);
        const double deviation = std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_eps);
        for (std::size_t i = 0; i < x.size(); ++i)
            x[i] = (x[i] - mean) / deviation * static_cast<double>(weight[i]) + static_cast<double>(bias[i]);
    }

    // Unchanged if the name is empty.
    rows normed(rows x, const std::string& base, const std::string& name) const {
        if (name.empty()) return x;
        const std::vector<float> weight = norm_weight(base + name);
        if (config_.norm == norm_kind::rms) {
            for (row& one : x) norm(one, weight);
        } else {
            const std::vector<float> bias = to_floats(weights_.at(base + name + ".bias"));
            for (row& one : x) layer_norm(one, weight, bias);
        }
        return x;
    }

    // int8 with a scale per group of 32: the largest magnitude is 127.
    static row to_int8(row x) {
        for (std::size_t first = 0; first < x.size(); first += 32) {
            const std::span<double> group = std::span(x).subspan(first, 32);
            double highest = 0;
            for (const double value : group) highest = std::max(highest, std::abs(value));
            const double step = static_cast<double>(static_cast<float>(highest) / 127.0f);
            for (double& value : group) value = step == 0 ? 0 : std::nearbyint(value / step) * step;
        }
        return x;
    }

    rows projected(rows x, const std::string& name) const {
        const weight& matrix = weights_.at(name + ".weight");
        if (rounds_inputs_ && rounds_inputs_(matrix)) std::ranges::transform(x, x.begin(), to_int8);
        const std::vector<float> elements = to_floats(matrix);
        const row wide(elements.begin(), elements.end());
        const std::size_t outputs = static_cast<std::size_t>(matrix.shape[0]);
        const std::size_t inputs = static_cast<std::size_t>(matrix.shape[1]);
        rows result(x.size(), row(outputs));
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t i = 0; i < outputs; ++i) {
                double sum = 0;
                for (std::size_t k = 0; k < inputs; ++k) sum += wide[i * inputs + k] * x[position][k];
                result[position][i] = sum;
            }
        }
        return result;
    }

    rows projected_with_bias(const rows& x, const std::string& name, bool has_bias) const {
        rows result = projected(x, name);
        if (!has_bias) return result;
        const std::vector<float> bias = to_floats(weights_.at(name + ".bias"));
        for (row& one : result) {
            for (std::size_t i = 0; i < one.size(); ++i) one[i] += static_cast<double>(bias[i]);
        }
        return result;
    }

    row frequencies_of(const rope_config& rope) const {
        row all;
        const std::size_t pairs = size(config_.rotary_dim(rope) / 2);
        for (std::size_t pair = 0; pair < pairs; ++pair) all.push_back(frequency(rope, pair, pairs));
        return all;
    }

    double frequency(const rope_config& rope, std::size_t pair, std::size_t pairs) const {
        const double share = static_cast<double>(pair) / static_cast<double>(pairs);
        const double plain = 1 / std::pow(rope.theta, share), original = rope.original_max_position_embeddings;
        const double divisor = rope.freq_factors.empty() ? 1 : static_cast<double>(rope.freq_factors[pair]);
        switch (rope.scaling) {
            case rope_scaling::none:
                return plain / divisor;
            case rope_scaling::linear:
                return plain / rope.factor / divisor;
            case rope_scaling::dynamic: {  // a higher theta: the lowest frequency is divided as if by a linear factor
                if (config_.context <= original) return plain;
                const double stretch = 1 + rope.factor * (config_.context - original) / original;
                return plain * std::pow(stretch, -static_cast<double>(pair) / static_cast<double>(pairs - 1));
            }
            case rope_scaling::yarn:
                return yarn_frequency(rope, plain, pair, pairs);
            case rope_scaling::llama3:
                return llama3_frequency(rope, plain);
            case rope_scaling::longrope:
                return plain /
                       (config_.context > original ? static_cast<double>(rope.long_freq_factors[pair]) : divisor);
        }
        return plain;
    }

    // High frequencies are kept, low ones divided, along a ramp over the pairs.
    static double yarn_frequency(const rope_config& rope, double plain, std::size_t pair, std::size_t pairs) {
        const auto pair_with_turns = [&](double turns) {
            const double wave = rope.original_max_position_embeddings / turns;
            return static_cast<double>(pairs) * std::log(wave / (2 * std::numbers::pi)) / std::log(rope.theta);
        };
        double first = pair_with_turns(rope.beta_fast), last = pair_with_turns(rope.beta_slow);
        if (rope.truncate) {
            first = std::floor(first);
            last = std::ceil(last);
        }
        first = std::max(first, 0.0);
        last = std::min(last, 2 * static_cast<double>(pairs) - 1);
        const double place = (static_cast<double>(pair) - first) / std::max(last - first, 0.001);
        const double divided = std::min(std::max(place, 0.0), 1.0);
        return divided * plain / rope.factor + (1 - divided) * plain;
    }

    // High frequencies are kept, low ones divided, and interpolated in between.
    static double llama3_frequency(const rope_config& rope, double plain) {
        const double wave = 2 * std::numbers::pi / plain;
        const double shortest_long = rope.original_max_position_embeddings / rope.low_freq_factor;
        const double longest_short = rope.original_max_position_embeddings / rope.high_freq_factor;
        if (wave < longest_short) return plain;
        if (wave > shortest_long) return plain / rope.factor;
        const double kept = (rope.original_max_position_embeddings / wave - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
        return (1 - kept) * plain / rope.factor + kept * plain;
    }

    static double attention_factor(const rope_config& rope) {
        if (rope.attention_factor) return *rope.attention_factor;
        const double growth = std::log(std::max(rope.factor, 1.0));
        if (rope.scaling == rope_scaling::longrope)
            return std::sqrt(1 + growth / std::log(rope.original_max_position_embeddings));
        if (rope.scaling != rope_scaling::yarn) return 1;
        if (rope.mscale && rope.mscale_all_dim)
            return (1 + 0.1 * *rope.mscale * growth) / (1 + 0.1 * *rope.mscale_all_dim * growth);
        return 1 + 0.1 * growth;
    }

    void rotate(std::span<double> head, std::size_t position, const rope_config& rope, const row& frequencies) const {
        const std::size_t pairs = frequencies.size();
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            const bool is_split = rope.style == rope_style::half_split;
            double& first = head[is_split ? pair : 2 * pair];
            double& second = head[is_split ? pair + pairs : 2 * pair + 1];
            const double angle = static_cast<double>(position) * frequencies[pair], factor = attention_factor(rope);
            const double turned = first * std::cos(angle) - second * std::sin(angle);
            second = factor * (second * std::cos(angle) + first * std::sin(angle));
            first = factor * turned;
        }
    }

    // Q or K: QK norm if the family has it, of each head or of all, then RoPE if the layer has it.
    rows turned(rows x, const std::string& norm_name, layer_rope kind) const {
        const std::size_t head_dim = size(config_.head_dim);
        const std::vector<float> scale =
            config_.qk_norm == qk_norm_rows::none ? std::vector<float>{} : norm_weight(norm_name);
        for (std::size_t position = 0; position < x.size(); ++position) {
            if (config_.qk_norm == qk_norm_rows::projection) norm(x[position], scale);
            for (std::size_t begin = 0; begin < x[position].size(); begin += head_dim) {
                const std::span<double> head = std::span(x[position]).subspan(begin, head_dim);
                if (config_.qk_norm == qk_norm_rows::head) norm(head, scale);
                if (kind == layer_rope::global) rotate(head, position, config_.rope, frequencies_);
                if (kind == layer_rope::local) rotate(head, position, *config_.local_rope, local_frequencies_);
            }
        }
        return x;
    }

    rows attention(const rows& x, const std::string& base, int layer) const {
        const layer_attention kind = config_.attention_of(layer);
        const bool has_bias = config_.qkv_bias;
        const rows queries = turned(projected_with_bias(x, base + "q_proj", has_bias), base + "q_norm", kind.rope);
        const rows keys = turned(projected_with_bias(x, base + "k_proj", has_bias), base + "k_norm", kind.rope);
        const rows values = projected_with_bias(x, base + "v_proj", has_bias);
        const std::size_t head_dim = size(config_.head_dim);
        const std::size_t heads_of_key = size(config_.heads / config_.kv_heads);
        const double scale = config_.attention_scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
        rows result(x.size(), row(size(config_.heads) * head_dim));
        for (std::size_t position = 0; position < x.size(); ++position) {
            const std::size_t seen = kind.window > 0 ? std::min(position + 1, size(kind.window)) : position + 1;
            const std::size_t first = position + 1 - seen;
            for (std::size_t head = 0; head < size(config_.heads); ++head) {
                const std::size_t query_begin = head * head_dim, key_begin = head / heads_of_key * head_dim;
                row scores(seen);
                for (std::size_t other = 0; other < seen; ++other) {
                    for (std::size_t i = 0; i < head_dim; ++i)
                        scores[other] += queries[position][query_begin + i] * keys[first + other][key_begin + i];
                    scores[other] = capped(scores[other] * scale, config_.attention_softcap);
                }
                double highest = *std::ranges::max_element(scores), sum = 0;
                if (config_.attention_sinks) {  // a logit without a value
                    const double sink = static_cast<double>(to_floats(weights_.at(base + "sinks"))[head]);
                    highest = std::max(highest, sink);
                    sum = std::exp(sink - highest);
                }
                for (double& score : scores) sum += score = std::exp(score - highest);
                for (std::size_t other = 0; other < seen; ++other) {
                    for (std::size_t i = 0; i < head_dim; ++i)
                        result[position][query_begin + i] += scores[other] / sum * values[first + other][key_begin + i];
                }
            }
        }
        return projected_with_bias(result, base + "o_proj", config_.output_bias);
    }

    double activated(double x) const {
        if (config_.activation == gate_activation::silu) return x / (1 + std::exp(-x));
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    }

    double gated(double gate, double up) const {
        const double limit = config_.experts.swiglu_limit;
        if (limit == 0) return activated(gate) * up;
        gate = std::min(gate, limit);
        return gate / (1 + std::exp(-1.702 * gate)) * (std::clamp(up, -limit, limit) + 1);
    }

    rows gated_mlp(const rows& x, const std::string& base, bool has_bias) const {
        rows inner = projected_with_bias(x, base + "gate_proj", has_bias);
        const rows up = projected_with_bias(x, base + "up_proj", has_bias);
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t i = 0; i < inner[position].size(); ++i)
                inner[position][i] = gated(inner[position][i], up[position][i]);
        }
        return projected_with_bias(inner, base + "down_proj", has_bias);
    }

    rows feed_forward(const rows& x, const std::string& base) const {
        const expert_config& experts = config_.experts;
        if (!experts.given()) return gated_mlp(x, base, false);
        const rows logits = projected_with_bias(x, base + "router", experts.bias);
        rows result(x.size(), row(x.front().size()));
        std::vector<rows> of_expert;  // every expert for every token
        for (int expert = 0; expert < experts.count; ++expert)
            of_expert.push_back(gated_mlp(x, base + "experts." + std::to_string(expert) + ".", experts.bias));
        for (std::size_t position = 0; position < x.size(); ++position) {
            std::vector<std::size_t> order(size(experts.count));
            for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
            std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return logits[position][i]; });
            double sum = 0;
            const std::size_t summed = size(experts.weights_of_chosen ? experts.per_token : experts.count);
            for (std::size_t i = 0; i < summed; ++i) sum += std::exp(logits[position][order[i]]);
            for (std::size_t i = 0; i < size(experts.per_token); ++i) {
                const double share = std::exp(logits[position][order[i]]) / sum;
                for (std::size_t k = 0; k < result[position].size(); ++k)
                    result[position][k] += share * of_expert[order[i]][position][k];
            }
        }
        return result;
    }

    const model_config& config_;
    const weight_set& weights_;
    matrix_choice rounds_inputs_;
    row frequencies_, local_frequencies_;
};

inline rows reference_logits(const model_config& config, const weight_set& weights, std::span<const int> tokens,
                             reference_model::matrix_choice rounds_inputs = {}) {
    return reference_model(config, weights, std::move(rounds_inputs)).logits(tokens);
}

inline int best_token(const row& logits) {
    return static_cast<int>(std::ranges::max_element(logits) - logits.begin());
}

// Distance of logits: the largest difference divided by the root mean square.
inline double distance(std::span<const double> logits, std::span<const double> expected) {
    double squares = 0, largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        squares += expected[i] * expected[i];
        largest = std::max(largest, std::abs(logits[i] - expected[i]));
        if (std::isnan(logits[i])) return INFINITY;
    }
    return largest / std::sqrt(squares / static_cast<double>(expected.size()));
}

}  // namespace imbrex::engine::test
