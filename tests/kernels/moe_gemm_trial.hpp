// A grouped GEMM over experts with random data, and the same by plain loops in float64.
#pragma once

#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/moe_gemm/problem.hpp>

#include "kernels/gemm/random_weights.hpp"
#include "kernels/gemm/reference.hpp"
#include "kernels/moe_trial.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

namespace imbrex_test {

struct moe_gemm_case {
    imbrex::moe_sizes sizes;
    int n, k;
    bool uneven = false;
    int a_gap = 0, b_gap = 0, out_gap = 0;  // elements between rows
};

// expected(product, product with the up matrix, expert, column)
using expected_value = std::function<double(double, double, int, int)>;

// Weights as they are: the rows of all experts below one another.
template <class In>
struct plain_experts {
    using element = In;
    int stride;
    buffer<In> values;

    plain_experts(world where, int rows, int k, int gap, unsigned seed)
        : stride(k + gap), values(where, std::size_t(rows) * stride) {
        fill_random(values.values, seed);
    }
    double at(int row, int column) const { return number(values.values[std::size_t(row) * stride + column]); }
    imbrex::gemm_operand<const In> operand() { return {values.upload(), stride}; }
};

// Packed weights.
template <class Weights>
struct packed_experts {
    using element = typename Weights::element;
    random_weights<Weights> weights;
    buffer<typename Weights::weight_tile> tiles;

    packed_experts(world where, int rows, int k, int, unsigned seed)
        : weights(rows, k, seed), tiles(where, imbrex::packed_tile_count<Weights>(rows, k)) {
        tiles.values = imbrex::pack_weights<Weights>(weights.values.data(), weights.scales.data(), rows, k);
        tiles.upload();
    }
    double at(int row, int column) const { return weights.at(row, column); }
    imbrex::gemm_operand<const element> operand() { return {}; }
};

template <class Experts, class Out, imbrex::moe_rows Rows, bool IsGlu>
struct moe_gemm_trial {
    using In = typename Experts::element;
    moe_gemm_case one;
    expected_routing expected;
    routing_trial routing;
    int b_rows = one.n * (IsGlu ? 2 : 1);
    int a_stride = one.k + one.a_gap, out_stride = one.n + one.out_gap;
    std::function<double(int, int, int, int)> scale;  // optional, of a product: row of A, expert, column, k
    buffer<In> a;
    Experts b;
    buffer<Out> out;

    moe_gemm_trial(world where, const moe_gemm_case& one, unsigned seed)
        : one(one),
          expected(random_routing(one.sizes, seed, one.uneven)),
          routing(where, one.sizes),
          a(where,
            std::size_t(Rows == imbrex::moe_rows::gathered ? one.sizes.tokens : one.sizes.max_rows()) * a_stride),
          b(where, one.sizes.experts * b_rows, one.k, one.b_gap, seed + 2),
          out(where, std::size_t(one.sizes.max_rows()) * out_stride, imbrex::convert<Out>(NAN)) {
        fill_random(a.values, seed + 1);
        routing.set(expected);
    }

    imbrex::moe_gemm_problem<In, Out> upload() {
        return {.n = one.n,
                .k = one.k,
                .routing = routing.routing,
                .a = {a.upload(), a_stride},
                .b = b.operand(),
                .out = {out.upload(), out_stride}};
    }

    double product(int row, int expert, int column) const {
        const int a_row = Rows == imbrex::moe_rows::gathered ? expected.token_of_row[row] : row;
        double sum = 0;
        for (int i = 0; i < one.k; ++i) {
            const double times = scale ? scale(a_row, expert, column, i) : 1.0;
            sum += times * number(a.values[std::size_t(a_row) * a_stride + i]) * b.at(expert * b_rows + column, i);
        }
        return sum;
    }

    // The largest error over the rows that have a token; infinite if a gap between rows has changed.
    double worst(const expected_value& value) {
        out.download();
        double found = 0;
        for (int row = 0; row < int(expected.token_of_row.size()); ++row) {
            const int expert = expected.expert_of_tile[row / one.sizes.tile_rows];
            const Out* const results = out.values.data() + std::size_t(row) * out_stride;
            for (int column = one.n; column < out_stride; ++column) {
                if (!std::isnan(number(results[column]))) found = INFINITY;
            }
            if (expected.token_of_row[row] < 0) continue;
            for (int column = 0; column < one.n; ++column) {
                const double up = IsGlu ? product(row, expert, column + one.n) : 0;
                const double right = value(product(row, expert, column), up, expert, column);
                const double error = std::abs(number(results[column]) - right) / (1 + std::abs(right));
                found = error <= found ? found : std::isnan(error) ? INFINITY : error;
            }
        }
        return found;
    }
};

// The clamped SwiGLU of GPT-OSS with random biases of each expert: the epilogue, and what it computes.
class clamped_swiglu_case {
  public:
    using type = imbrex::epilogue::biased_glu<bf16, imbrex::activation::clamped_swiglu>;

    clamped_swiglu_case(int experts, int n) : n_(n), bias_(std::size_t(experts) * 2 * n) {
        fill_random(bias_, 9, -4, 4);
    }
    std::function<type(world)> epilogue() {
        return [this](world where) {
            alive_.push_back(std::make_unique<buffer<bf16>>(where, bias_.size()));
            alive_.back()->values = bias_;
            return type{{alive_.back()->upload(), 2 * n_, 2 * n_}, {}};
        };
    }
    expected_value expected() const {
        return [this](double gate, double up, int expert, int column) {
            const std::size_t place = std::size_t(expert) * 2 * n_ + column;
            const double g = std::min(gate + number(bias_[place]), 7.0);
            const double u = std::clamp(up + number(bias_[place + n_]), -7.0, 7.0);
            return g / (1 + std::exp(-1.702 * g)) * (u + 1);
        };
    }

  private:
    int n_;
    std::vector<bf16> bias_;
    std::vector<std::unique_ptr<buffer<bf16>>> alive_;
};

}  // namespace imbrex_test
