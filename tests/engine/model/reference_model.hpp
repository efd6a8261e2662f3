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
        : config_(config), weights_(weights), rounds_inputs_(std::move(rounds_inputs)) {
        for (std::size_t pair = 0; pair < size(config.head_dim / 2); ++pair) frequencies_.push_back(frequency(pair));
    }

    // Row i: logits after tokens[0 .. i].
    rows logits(std::span<const int> tokens) const {
        rows x = embedded(tokens);
        for (int layer = 0; layer < config_.layers; ++layer) {
            const std::string base = "model.layers." + std::to_string(layer) + ".";
            add(x, attention(normed(x, base + "input_layernorm"), base + "self_attn.", layer));
            add(x, feed_forward(normed(x, base + "post_attention_layernorm"), base + "mlp."));
        }
        return projected(normed(x, "model.norm"), config_.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
    }

    const row& frequencies() const { return frequencies_; }

  private:
    static std::size_t size(int value) { return static_cast<std::size_t>(value); }

    static void add(rows& x, const rows& more) {
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t i = 0; i < x[position].size(); ++i) x[position][i] += more[position][i];
        }
    }

    rows embedded(std::span<const int> tokens) const {
        const weight& table = weights_.at("model.embed_tokens.weight");
        rows result;
        for (const int token : tokens) {
            std::vector<float> values(size(config_.hidden_size));
            to_floats(table, token, 1, values);
            result.emplace_back(values.begin(), values.end());
        }
        return result;
    }

    // RMSNorm.
    void norm(std::span<double> x, std::span<const float> scale) const {
        double squares = 0;
        for (const double value : x) squares += value * value;
        const double length = std::sqrt(squares / static_cast<double>(x.size()) + config_.rms_norm_eps);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] / length * static_cast<double>(scale[i]);
    }

    rows normed(rows x, const std::string& name) const {
        const std::vector<float> scale = to_floats(weights_.at(name + ".weight"));
        for (row& one : x) norm(one, scale);
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

    rows projected_with_bias(const rows& x, const std::string& name) const {
        rows result = projected(x, name);
        if (!config_.qkv_bias) return result;
        const std::vector<float> bias = to_floats(weights_.at(name + ".bias"));
        for (row& one : result) {
            for (std::size_t i = 0; i < one.size(); ++i) one[i] += static_cast<double>(bias[i]);
        }
        return result;
    }

    double frequency(std::size_t pair) const {
        const rope_config& rope = config_.rope;
        const double plain =
            1 / std::pow(rope.theta, 2 * static_cast<double>(pair) / static_cast<double>(config_.head_dim));
        if (rope.scaling == rope_scaling::none) return plain;
        if (rope.scaling == rope_scaling::linear) return plain / rope.factor;
        if (rope.scaling == rope_scaling::freq_factors) return plain / static_cast<double>(rope.freq_factors[pair]);
        // Llama 3: high frequencies are kept, low ones divided, and interpolated in between.
        const double wave = 2 * std::numbers::pi / plain;
        const double shortest_long = rope.original_max_position_embeddings / rope.low_freq_factor;
        const double longest_short = rope.original_max_position_embeddings / rope.high_freq_factor;
        if (wave < longest_short) return plain;
        if (wave > shortest_long) return plain / rope.factor;
        const double kept = (rope.original_max_position_embeddings / wave - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
        return (1 - kept) * plain / rope.factor + kept * plain;
    }

    void rotate(std::span<double> head, std::size_t position) const {
        const std::size_t pairs = head.size() / 2;
        for (std::size_t pair = 0; pair < pairs; ++pair) {
            const bool is_split = config_.rope.style == rope_style::half_split;
            double& first = head[is_split ? pair : 2 * pair];
            double& second = head[is_split ? pair + pairs : 2 * pair + 1];
            const double angle = static_cast<double>(position) * frequencies_[pair];
            const double turned = first * std::cos(angle) - second * std::sin(angle);
            second = second * std::cos(angle) + first * std::sin(angle);
            first = turned;
        }
    }

    // Q or K per head: QK norm if the family has it, then RoPE.
    rows turned(rows x, const std::string& norm_name) const {
        const std::size_t head_dim = size(config_.head_dim);
        const std::vector<float> scale =
            config_.qk_norm ? to_floats(weights_.at(norm_name + ".weight")) : std::vector<float>{};
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t begin = 0; begin < x[position].size(); begin += head_dim) {
                const std::span<double> head = std::span(x[position]).subspan(begin, head_dim);
                if (config_.qk_norm) norm(head, scale);
                rotate(head, position);
            }
        }
        return x;
    }

    rows attention(const rows& x, const std::string& base, int layer) const {
        const rows queries = turned(projected_with_bias(x, base + "q_proj"), base + "q_norm");
        const rows keys = turned(projected_with_bias(x, base + "k_proj"), base + "k_norm");
        const rows values = projected_with_bias(x, base + "v_proj");
        const std::size_t head_dim = size(config_.head_dim);
        const std::size_t heads_of_key = size(config_.heads / config_.kv_heads);
        const bool has_window = config_.sliding_window > 0 && layer >= config_.first_sliding_window_layer;
        rows result(x.size(), row(size(config_.heads) * head_dim));
        for (std::size_t position = 0; position < x.size(); ++position) {
            const std::size_t seen = has_window ? std::min(position + 1, size(config_.sliding_window)) : position + 1;
            const std::size_t first = position + 1 - seen;
            for (std::size_t head = 0; head < size(config_.heads); ++head) {
                const std::size_t query_begin = head * head_dim, key_begin = head / heads_of_key * head_dim;
                row scores(seen);
                for (std::size_t other = 0; other < seen; ++other) {
                    for (std::size_t i = 0; i < head_dim; ++i)
                        scores[other] += queries[position][query_begin + i] * keys[first + other][key_begin + i];
                    scores[other] /= std::sqrt(static_cast<double>(head_dim));
                }
                const double highest = *std::ranges::max_element(scores);
                double sum = 0;
                for (double& score : scores) sum += score = std::exp(score - highest);
                for (std::size_t other = 0; other < seen; ++other) {
                    for (std::size_t i = 0; i < head_dim; ++i)
                        result[position][query_begin + i] += scores[other] / sum * values[first + other][key_begin + i];
                }
            }
        }
        return projected(result, base + "o_proj");
    }

    rows feed_forward(const rows& x, const std::string& base) const {
        rows gated = projected(x, base + "gate_proj");
        const rows up = projected(x, base + "up_proj");
        for (std::size_t position = 0; position < x.size(); ++position) {
            for (std::size_t i = 0; i < gated[position].size(); ++i) {
                double& gate = gated[position][i];
                gate = gate / (1 + std::exp(-gate)) * up[position][i];
            }
        }
        return projected(gated, base + "down_proj");
    }

    const model_config& config_;
    const weight_set& weights_;
    matrix_choice rounds_inputs_;
    row frequencies_;
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
