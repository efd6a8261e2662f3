// Attention and its gradients in double, for tests of the backward pass. `gradients_in_double` is itself tested by
// finite differences of `attention_in_double` (attention_backward/reference.cpp).
#pragma once

#include <imbrex/kernels/attention/mask.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace imbrex_test {

using tensor_values = std::vector<double>;

// One sequence: Q [heads, seqlen_q, head_dim_qk], K and V [kv_heads, seqlen_k, ...], O and dO [heads, seqlen_q,
// head_dim_v].
struct reference_sizes {
    int batch = 0, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;
    int head_dim_qk = 16, head_dim_v = 16;
    double scale = 0.25;
    tensor_values sinks = {};  // a logit per head, or none

    std::size_t query_at(int head, int query, int columns) const {
        return (std::size_t(head) * seqlen_q + query) * columns;
    }
    std::size_t key_at(int kv_head, int key, int columns) const {
        return (std::size_t(kv_head) * seqlen_k + key) * columns;
    }
    int kv_head_of(int head) const { return head / (heads / kv_heads); }
};

struct reference_forward {
    tensor_values out, lse;  // natural logarithm
};
// Sums of squares of the terms that a gradient is the sum of: where these cancel, their rounding is most of its error.
struct gradient_terms {
    double d_q = 0, d_k = 0, d_sinks = 0, d_scores = 0;
};
struct reference_gradients {
    tensor_values d_q, d_k, d_v;
    tensor_values d_sinks;
    tensor_values d_scores;  // [head, query, key], of the score_mod's results
    tensor_values products;  // [head, query, key], the score_mod's arguments
    gradient_terms terms;    // without the slopes of the score_mod
};

// q . k times the scale.
inline double product_in_double(const reference_sizes& n, const tensor_values& q, const tensor_values& k, int head,
                                int query, int key) {
    const std::size_t q_row = n.query_at(head, query, n.head_dim_qk);
    const std::size_t k_row = n.key_at(n.kv_head_of(head), key, n.head_dim_qk);
    double dot = 0;
    for (int i = 0; i < n.head_dim_qk; ++i) dot += q[q_row + i] * k[k_row + i];
    return dot * n.scale;
}

// The probabilities of one query and the slopes of its score_mod; returns the LSE. `score(sequence, query, key, x)` and
// `slope` are those of a score_mod.
template <class Keep, class Score, class Slope>
double probabilities_in_double(const reference_sizes& n, const tensor_values& q, const tensor_values& k, int head,
                               int query, const Keep& keep, const Score& score, const Slope& slope, tensor_values& p,
                               tensor_values& slopes) {
    const imbrex::attention_extents sequence{n.batch, head, n.seqlen_q, n.seqlen_k};
    p.assign(n.seqlen_k, -INFINITY);
    slopes.assign(n.seqlen_k, 0);
    double most = -INFINITY, sum = 0;
    for (int key = 0; key < n.seqlen_k; ++key) {
        if (!keep(sequence, query, key)) continue;
        const double product = product_in_double(n, q, k, head, query, key);
        p[key] = score(sequence, query, key, product);
        slopes[key] = slope(sequence, query, key, product);
        most = std::fmax(most, p[key]);
    }
    if (!n.sinks.empty()) {
        most = std::fmax(most, n.sinks[head]);
        sum = std::exp(n.sinks[head] - most);
    }
    for (const double x : p) sum += x == -INFINITY ? 0 : std::exp(x - most);
    const double lse = sum == 0 ? -INFINITY : most + std::log(sum);
    for (double& x : p) x = x == -INFINITY ? 0 : std::exp(x - lse);
    return lse;
}

template <class Keep, class Score, class Slope>
reference_forward attention_in_double(const reference_sizes& n, const tensor_values& q, const tensor_values& k,
                                      const tensor_values& v, const Keep& keep, const Score& score,
                                      const Slope& slope) {
    reference_forward made{tensor_values(n.query_at(n.heads, 0, n.head_dim_v)), tensor_values(n.heads * n.seqlen_q)};
    tensor_values p, slopes;
    for (int head = 0; head < n.heads; ++head) {
        for (int query = 0; query < n.seqlen_q; ++query) {
            made.lse[n.query_at(head, query, 1)] =
                probabilities_in_double(n, q, k, head, query, keep, score, slope, p, slopes);
            for (int key = 0; key < n.seqlen_k; ++key) {
                for (int i = 0; p[key] != 0 && i < n.head_dim_v; ++i) {
                    made.out[n.query_at(head, query, n.head_dim_v) + i] +=
                        p[key] * v[n.key_at(n.kv_head_of(head), key, n.head_dim_v) + i];
                }
            }
        }
    }
    return made;
}

template <class Keep, class Score, class Slope>
reference_gradients gradients_in_double(const reference_sizes& n, const tensor_values& q, const tensor_values& k,
                                        const tensor_values& v, const tensor_values& d_out, const Keep& keep,
                                        const Score& score, const Slope& slope) {
    const reference_forward forward = attention_in_double(n, q, k, v, keep, score, slope);
    reference_gradients made{tensor_values(q.size()),
                             tensor_values(k.size()),
                             tensor_values(v.size()),
                             tensor_values(n.sinks.size()),
                             tensor_values(std::size_t(n.heads) * n.seqlen_q * n.seqlen_k),
                             tensor_values(std::size_t(n.heads) * n.seqlen_q * n.seqlen_k),
                             {}};
    tensor_values p, slopes;
    for (int head = 0; head < n.heads; ++head) {
        for (int query = 0; query < n.seqlen_q; ++query) {
            probabilities_in_double(n, q, k, head, query, keep, score, slope, p, slopes);
            const std::size_t row = n.query_at(head, query, n.head_dim_v),
                              q_row = n.query_at(head, query, n.head_dim_qk);
            double delta = 0, delta_terms = 0;
            for (int i = 0; i < n.head_dim_v; ++i) {
                const double term = d_out[row + i] * forward.out[row + i];
                delta += term;
                delta_terms += term * term;
            }
            delta_terms += delta * delta;
            if (!n.sinks.empty()) {
                const double p_sink = std::exp(n.sinks[head] - forward.lse[n.query_at(head, query, 1)]);
                made.d_sinks[head] -= p_sink * delta;
                made.terms.d_sinks += p_sink * p_sink * delta_terms;
            }
            for (int key = 0; key < n.seqlen_k; ++key) {
                if (p[key] == 0) continue;
                const std::size_t v_row = n.key_at(n.kv_head_of(head), key, n.head_dim_v);
                const std::size_t k_row = n.key_at(n.kv_head_of(head), key, n.head_dim_qk);
                double d_p = 0;
                for (int i = 0; i < n.head_dim_v; ++i) {
                    d_p += d_out[row + i] * v[v_row + i];
                    made.d_v[v_row + i] += p[key] * d_out[row + i];
                }
                const std::size_t place = n.query_at(head, query, n.seqlen_k) + key;
                made.d_scores[place] = p[key] * (d_p - delta);
                made.products[place] = product_in_double(n, q, k, head, query, key);
                const double d_s = p[key] * (d_p - delta) * slopes[key] * n.scale;
                const double squares = p[key] * p[key] * (d_p * d_p + delta_terms);
                const double scaled = squares * n.scale * n.scale;
                made.terms.d_scores += squares;
                for (int i = 0; i < n.head_dim_qk; ++i) {
                    made.terms.d_q += scaled * k[k_row + i] * k[k_row + i];
                    made.terms.d_k += scaled * q[q_row + i] * q[q_row + i];
                    made.d_q[q_row + i] += d_s * k[k_row + i];
                    made.d_k[k_row + i] += d_s * q[q_row + i];
                }
            }
        }
    }
    return made;
}

}  // namespace imbrex_test
