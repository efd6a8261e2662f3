// A whole sequence, and attention to it in float64: what ranks that each have some of its tokens must find together.
#pragma once

#include <imbrex/core/bf16.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace imbrex_test {

inline constexpr int whole_depth = 64;

// One sequence, whole: [token, head, column].
struct whole_sequence {
    int tokens, heads, key_heads;
    std::vector<imbrex::bf16> q, k, v;

    whole_sequence(int tokens, int heads, int key_heads, std::mt19937& random)
        : tokens(tokens), heads(heads), key_heads(key_heads) {
        std::normal_distribution<float> normal;
        const auto fill = [&](std::vector<imbrex::bf16>& values, int with) {
            values.resize(std::size_t(tokens) * with * whole_depth);
            for (imbrex::bf16& one : values) one = imbrex::bf16(normal(random));
        };
        fill(q, heads);
        fill(k, key_heads);
        fill(v, key_heads);
    }
};

struct expected_row {
    std::vector<double> out;
    double log2_sum;
};
inline expected_row expected(const whole_sequence& s, const imbrex::window_mask& mask, int token, int head,
                             double cap = 0, const float* sink = nullptr) {
    constexpr int depth = whole_depth;
    const int key_head = head / (s.heads / s.key_heads);
    const int first = mask.left == imbrex::unbounded ? 0 : std::max(token - mask.left, 0);
    const int last = mask.right == imbrex::unbounded ? s.tokens - 1 : std::min(token + mask.right, s.tokens - 1);
    expected_row made{std::vector<double>(depth), 0};
    std::vector<double> scores;
    for (int key = first; key <= last; ++key) {
        double score = 0;
        for (int i = 0; i < depth; ++i) {
            score += double(float(s.q[(std::size_t(token) * s.heads + head) * depth + i])) *
                     double(float(s.k[(std::size_t(key) * s.key_heads + key_head) * depth + i]));
        }
        score /= std::sqrt(double(depth));
        if (cap > 0) score = cap * std::tanh(score / cap);
        scores.push_back(score);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = sink == nullptr ? 0 : std::exp(*sink - most);
    for (int key = first; key <= last; ++key) {
        const double weight = std::exp(scores[key - first] - most);
        sum += weight;
        for (int i = 0; i < depth; ++i) {
            made.out[i] += weight * double(float(s.v[(std::size_t(key) * s.key_heads + key_head) * depth + i]));
        }
    }
    for (double& one : made.out) one /= sum;
    made.log2_sum = (most + std::log(sum)) / std::log(2.0);
    return made;
}

}  // namespace imbrex_test
