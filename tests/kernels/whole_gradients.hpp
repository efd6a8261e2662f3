// Whole sequences, their attention and gradients in double: the reference of the backward pass of sharded attention.
#pragma once

#include "kernels/attention_backward/reference.hpp"

#include <imbrex/core/bf16.hpp>
#include <imbrex/kernels/attention/mask.hpp>

#include <cmath>
#include <cstddef>
#include <random>
#include <utility>

namespace imbrex_test {

// [head, token, column]
struct whole_gradients {
    reference_sizes sizes;
    tensor_values q, k, v, d_out;
    reference_forward forward;
    reference_gradients gradients;
};

// The sizes of one sequence of a schedule.
template <class Schedule>
reference_sizes whole_sizes(const Schedule& one, tensor_values sinks = {}) {
    return {0,
            one.sizes.heads,
            one.sizes.kv_heads,
            one.tokens,
            one.tokens,
            one.sizes.head_dim,
            one.sizes.head_dim_v,
            1 / std::sqrt(double(one.sizes.head_dim)),
            std::move(sinks)};
}

// cap: of a softcap, or 0 without one.
inline whole_gradients make_whole_gradients(const reference_sizes& sizes, const imbrex::window_mask& mask,
                                            std::mt19937& random, double cap = 0) {
    std::normal_distribution<float> normal;
    const auto values = [&](std::size_t count) {
        tensor_values made(count);
        for (double& x : made) x = float(imbrex::bf16(normal(random)));
        return made;
    };
    whole_gradients made{sizes,
                         values(sizes.query_at(sizes.heads, 0, sizes.head_dim_qk)),
                         values(sizes.key_at(sizes.kv_heads, 0, sizes.head_dim_qk)),
                         values(sizes.key_at(sizes.kv_heads, 0, sizes.head_dim_v)),
                         values(sizes.query_at(sizes.heads, 0, sizes.head_dim_v)),
                         {},
                         {}};
    const auto keep = [&](const imbrex::attention_extents& s, int query, int key) { return mask.keep(s, query, key); };
    const auto score = [&](const imbrex::attention_extents&, int, int, double x) {
        return cap > 0 ? cap * std::tanh(x / cap) : x;
    };
    const auto slope = [&](const imbrex::attention_extents&, int, int, double x) {
        return cap > 0 ? 1 - std::pow(std::tanh(x / cap), 2) : 1.0;
    };
    made.forward = attention_in_double(sizes, made.q, made.k, made.v, keep, score, slope);
    made.gradients = gradients_in_double(sizes, made.q, made.k, made.v, made.d_out, keep, score, slope);
    return made;
}

}  // namespace imbrex_test
