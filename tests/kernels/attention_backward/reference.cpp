// The gradients in double that the tests compare with, checked by finite differences.
#include "kernels/attention_backward/reference.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>

using namespace imbrex_test;

namespace {

tensor_values random_values(std::size_t count, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> number;
    tensor_values made(count);
    for (double& one : made) one = number(generator);
    return made;
}

}  // namespace

TEST_CASE(
    "gradients in double agree with finite differences: GQA, causal, softcap, biases before and after it, sinks") {
    reference_sizes n{.heads = 4, .kv_heads = 2, .seqlen_q = 5, .seqlen_k = 7, .head_dim_qk = 3, .head_dim_v = 4};
    n.sinks = random_values(4, 5);
    tensor_values q = random_values(4 * 5 * 3, 1), k = random_values(2 * 7 * 3, 2), v = random_values(2 * 7 * 4, 3);
    const tensor_values d_out = random_values(4 * 5 * 4, 4);
    const auto keep = [](const imbrex::attention_extents& s, int query, int key) { return key <= query + s.offset(); };
    tensor_values before = random_values(4 * 5 * 7, 7), after = random_values(4 * 5 * 7, 6);
    const auto place = [&](int head, int query, int key) { return n.query_at(head, query, 7) + key; };
    const auto score = [&](const imbrex::attention_extents& s, int query, int key, double x) {
        return 2 * std::tanh((x + before[place(s.head, query, key)]) / 2) + after[place(s.head, query, key)];
    };
    const auto slope = [&](const imbrex::attention_extents& s, int query, int key, double x) {
        return 1 - std::pow(std::tanh((x + before[place(s.head, query, key)]) / 2), 2);
    };
    const reference_gradients found = gradients_in_double(n, q, k, v, d_out, keep, score, slope);
    const auto loss = [&] {
        const reference_forward forward = attention_in_double(n, q, k, v, keep, score, slope);
        double sum = 0;
        for (std::size_t i = 0; i < d_out.size(); ++i) sum += forward.out[i] * d_out[i];
        return sum;
    };
    const auto compare = [&](tensor_values& input, const tensor_values& gradient) {
        for (std::size_t i = 0; i < input.size(); ++i) {
            const double before = input[i], step = 1e-5;
            input[i] = before + step;
            const double above = loss();
            input[i] = before - step;
            const double below = loss();
            input[i] = before;
            CHECK((above - below) / (2 * step) == doctest::Approx(gradient[i]).epsilon(1e-6).scale(1));
        }
    };
    compare(q, found.d_q);
    compare(k, found.d_k);
    compare(v, found.d_v);
    compare(n.sinks, found.d_sinks);
    compare(after, found.d_scores);
    tensor_values d_before = found.d_scores;
    for (int head = 0; head < 4; ++head) {
        for (int query = 0; query < 5; ++query) {
            for (int key = 0; key < 7; ++key) {
                const std::size_t at = place(head, query, key);
                d_before[at] *= slope({0, head, 5, 7}, query, key, found.products[at]);
            }
        }
    }
    compare(before, d_before);
}
