// Reference sampling by sorting in double: thresholds, draws and logprobs.
#pragma once

#include <imbrex/core/counter_rng.hpp>
#include <imbrex/kernels/sample/options.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

inline float clean_logit(float logit) {
    if (std::isnan(logit)) return -std::numeric_limits<float>::infinity();
    return std::min(logit, std::numeric_limits<float>::max()) + 0.0f;
}

inline std::vector<float> reference_scores(const std::vector<float>& logits, const sample_options& options,
                                           std::span<const logit_adjustment> adjustments) {
    std::vector<float> scores;
    for (const float logit : logits) scores.push_back(clean_logit(logit));
    for (const logit_adjustment& one : adjustments) {
        float& score = scores[static_cast<std::size_t>(one.token)];
        score += one.bias;
        const bool seen = one.generated > 0 || one.in_prompt != 0;
        if (seen) score = score > 0 ? score / options.repetition_penalty : score * options.repetition_penalty;
        if (one.generated > 0) {
            score = std::fma(-options.frequency_penalty, static_cast<float>(one.generated), score);
            score -= options.presence_penalty;
        }
        score = clean_logit(score);
    }
    return scores;
}

// Tokens above -infinity, best first, ties by token id.
inline std::vector<int> sorted_tokens(const std::vector<float>& scores) {
    std::vector<int> tokens;
    for (int i = 0; i < static_cast<int>(scores.size()); ++i) {
        if (std::isfinite(scores[i])) tokens.push_back(i);
    }
    std::ranges::stable_sort(tokens, [&](int a, int b) { return scores[a] > scores[b]; });
    return tokens;
}

struct reference_sample {
    std::vector<float> scores;
    std::vector<int> sorted;
    // Bounds for the number of tokens kept, given the rounding of probabilities.
    std::size_t fewest = 0, most = 0;
    double temperature = 1;
    counter_rng stream{};

    double weight(int token) const { return std::exp((double{scores[token]} - scores[sorted[0]]) / temperature); }
    double rate(int token) const {
        const float uniform = uniform_of(stream.bits(static_cast<std::uint32_t>(token)));
        return weight(token) / -std::log1p(-std::min(double{uniform}, 1 - 0x1p-33));
    }
    // The largest race value among the `kept` best tokens.
    double best_rate(std::size_t kept) const {
        double best = 0;
        for (std::size_t i = 0; i < kept; ++i) best = std::max(best, rate(sorted[i]));
        return best;
    }
};

inline reference_sample sample_by_sorting(const std::vector<float>& logits, const sample_options& options,
                                          std::span<const logit_adjustment> adjustments = {}) {
    reference_sample all;
    all.scores = reference_scores(logits, options, adjustments);
    all.sorted = sorted_tokens(all.scores);
    all.temperature = options.temperature;
    all.stream = counter_rng::of(options.seed, static_cast<std::uint64_t>(options.position));
    all.fewest = all.most = std::min<std::size_t>(all.sorted.size(), 1);
    if (options.temperature == 0 || all.sorted.empty()) return all;
    std::size_t kept = all.sorted.size();
    if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) sum += all.weight(all.sorted[i]);
    const auto enough = [&](double part) {
        double reached = 0;
        std::size_t count = 0;
        while (count < kept && (count == 0 || reached < part * sum)) reached += all.weight(all.sorted[count++]);
        return count;
    };
    constexpr double rounding = 1e-6;
    all.fewest = options.top_p < 1 ? enough(options.top_p - rounding) : kept;
    all.most = options.top_p < 1 ? enough(options.top_p + rounding) : kept;
    const auto likely = [&](double part) {
        std::size_t count = 0;
        while (count < kept && (count == 0 || all.weight(all.sorted[count]) >= part)) ++count;
        return count;
    };
    all.fewest = std::min(all.fewest, likely(options.min_p * (1 + rounding)));
    all.most = std::min(all.most, likely(options.min_p * (1 - rounding)));
    return all;
}

inline std::vector<double> log_probabilities(const std::vector<float>& logits) {
    std::vector<double> all;
    for (const float logit : logits) all.push_back(clean_logit(logit));
    const double most = *std::ranges::max_element(all);
    double sum = 0;
    for (const double one : all) sum += std::exp(one - most);
    for (double& one : all) one = one - most - std::log(sum);
    return all;
}

}  // namespace imbrex_test
