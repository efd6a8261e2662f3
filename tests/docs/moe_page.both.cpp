// The layer of docs/moe.md beside plain loops in float64, in every world, with fewer tokens than it has room for; and no
// hazard in any schedule. moe_page.hpp has the code blocks of the page.
#include <imbrex/imbrex.hpp>
#include <moe_page.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace imbrex_test;

namespace {

struct layer_trial {
    static constexpr int hidden = 48, ffn = 72, tokens = 9, experts = 4, top_k = 2;

    buffer<float> logits;
    buffer<bf16> x, gate_up, gate_up_bias, down, down_bias, out;

    explicit layer_trial(world where)
        : logits(where, tokens * experts),
          x(where, tokens * hidden),
          gate_up(where, experts * 2 * ffn * hidden),
          gate_up_bias(where, experts * 2 * ffn),
          down(where, experts * hidden * ffn),
          down_bias(where, experts * hidden),
          out(where, tokens * hidden, bf16(NAN)) {
        fill_random(logits.values, 1);
        unsigned seed = 2;
        for (buffer<bf16>* one : {&x, &gate_up, &gate_up_bias, &down, &down_bias}) fill_random(one->values, seed++);
    }

    moe_layer layer(world where) {
        return {where,
                {.tokens = tokens + 3, .experts = experts, .top_k = top_k, .tile_rows = 64},
                {hidden, ffn, gate_up.upload(), gate_up_bias.upload(), down.upload(), down_bias.upload()}};
    }

    // A row of a matrix times a vector, plus the row's bias.
    template <class T>
    static double product(const buffer<bf16>& matrix, const buffer<bf16>& bias, int row, const std::vector<T>& vector) {
        double sum = static_cast<float>(bias.values[row]);
        for (std::size_t i = 0; i < vector.size(); ++i) {
            sum += vector[i] * static_cast<float>(matrix.values[row * vector.size() + i]);
        }
        return sum;
    }

    std::vector<double> expected(int token) const {
        std::vector<int> order(experts);
        std::iota(order.begin(), order.end(), 0);
        const auto logit = [&](int expert) { return logits.values[token * experts + expert]; };
        std::sort(order.begin(), order.end(), [&](int a, int b) { return logit(a) > logit(b); });
        double total = 0;
        for (int i = 0; i < top_k; ++i) total += std::exp(logit(order[i]));
        const std::vector<bf16> own(x.values.begin() + token * hidden, x.values.begin() + (token + 1) * hidden);
        const std::vector<float> row(own.begin(), own.end());
        std::vector<double> result(hidden);
        for (int i = 0; i < top_k; ++i) {
            const int expert = order[i];
            std::vector<double> h(ffn);
            for (int column = 0; column < ffn; ++column) {
                const int first = expert * 2 * ffn + column;
                const double gate = std::min(product(gate_up, gate_up_bias, first, row), 7.0);
                const double up = std::clamp(product(gate_up, gate_up_bias, first + ffn, row), -7.0, 7.0);
                h[column] = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
            }
            for (int column = 0; column < hidden; ++column) {
                result[column] +=
                    std::exp(logit(expert)) / total * product(down, down_bias, expert * hidden + column, h);
            }
        }
        return result;
    }
};

}  // namespace

TEST_CASE("the layer of docs/moe.md computes a layer of GPT-OSS") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        layer_trial trial(where);
        const moe_layer layer = trial.layer(where);
        layer.forward(trial.tokens, trial.logits.upload(), trial.x.upload(), trial.out.upload());
        trial.out.download();
        double error = 0, largest = 0;
        for (int token = 0; token < trial.tokens; ++token) {
            const std::vector<double> expected = trial.expected(token);
            for (int column = 0; column < trial.hidden; ++column) {
                const double off =
                    std::abs(static_cast<float>(trial.out.values[token * trial.hidden + column]) - expected[column]);
                error = off <= error ? error : std::isnan(off) ? INFINITY : off;
                largest = std::max(largest, std::abs(expected[column]));
            }
        }
        CHECK(error <= 0.01 * largest);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("the layer of docs/moe.md has no hazard in any schedule") {
    layer_trial trial(world::host);
    const moe_layer layer = trial.layer(world::host_checked);
    const auto forward = [&] {
        layer.forward(trial.tokens, trial.logits.values.data(), trial.x.values.data(), trial.out.values.data());
    };
    CHECK(hazard_text(host::check_launches(forward, {.schedules = schedules_to_run(20)})) == "");
}
#endif
