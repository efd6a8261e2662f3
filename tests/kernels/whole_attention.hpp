// A whole sequence and attention over it in float64: the reference for sharded attention.
#pragma once

#include <imbrex/core/bf16.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace imbrex_test {

inline constexpr int whole_head_dim = 64;

// One whole sequence: [token, head, column].
struct whole_sequence {
    int tokens, heads, kv_heads;
    std::vector<imbrex::bf16> q, k, v;

    whole_sequence(int tokens, int heads, int kv_heads, std::mt19937& random)
        : tokens(tokens), heads(heads), kv_heads(kv_heads) {
        std::normal_distribution<float> normal;
        const auto fill = [&](std::vector<imbrex::bf16>& values, int with) {
            values.resize(std::size_t(tokens) * with * whole_head_dim);
            for (imbrex::bf16& one : values) one = imbrex::bf16(normal(random));
        };
        fill(q, heads);
        fill(k, kv_heads);
        fill(v, kv_heads);
    }
};

struct expected_row {
    std::vector<double> out;
    double lse2;
};
inline expected_row expected(const whole_sequence& s, const imbrex::window_mask& mask, int token, int head,
                             double cap = 0, const float* sink = nullptr) {
    constexpr int head_dim = whole_head_dim;
    const int kv_head = head / (s.heads / s.kv_heads);
    const int first = mask.left == imbrex::unbounded ? 0 : std::max(token - mask.left, 0);
    const int last = mask.right == imbrex::unbounded ? s.tokens - 1 : std::min(token + mask.right, s.tokens - 1);
    expected_row made{std::vector<double>(head_dim), 0};
    std::vector<double> scores;
    for (int key = first; key <= last; ++key) {
        double score = 0;
        for (int i = 0; i < head_dim; ++i) {
            score += double(float(s.q[(std::size_t(token) * s.heads + head) * head_dim + i])) *
                     double(float(s.k[(std::size_t(key) * s.kv_heads + kv_head) * head_dim + i]));
        }
        score /= std::sqrt(double(head_dim));
        if (cap > 0) score = cap * std::tanh(score / cap);
        scores.push_back(score);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = sink == nullptr ? 0 : std::exp(*sink - most);
    for (int key = first; key <= last; ++key) {
        const double weight = std::exp(scores[key - first] - most);
        sum += weight;
        for (int i = 0; i < head_dim; ++i) {
            made.out[i] += weight * double(float(s.v[(std::size_t(key) * s.kv_heads + kv_head) * head_dim + i]));
        }
    }
    for (double& one : made.out) one /= sum;
    made.lse2 = (most + std::log(sum)) / std::log(2.0);
    return made;
}

}  // namespace imbrex_test
