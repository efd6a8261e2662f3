// What multiplies and attends on a CPU: products by rows of weights and attention by rows, in float. Weights are kept as they are in the file or
// as asked for, and are read once for each product, which is all that it takes when there are few rows. (`tile_kernels.hpp` is the same
// for a GPU.)
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/gated.hpp>
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/norm.hpp>
#include <imbrex/kernels/paged_rows.hpp>

#include <cstdint>
#include <variant>
#include <vector>

#include "model_config.hpp"
#include "numbers.hpp"
#include "row_matrix.hpp"
#include "runner.hpp"
#include "stacked_weights.hpp"
#include "step.hpp"

namespace imbrex::engine {

class row_kernels {
  public:
    using element = float;
    using matrix = row_matrix;
    using table = row_table;
    struct normed_matrix {
        normed_matrix() = default;
        normed_matrix(const stacked_weights& from, const std::vector<float>& norm, const runner_options& options)
            : weights(from, options), norm(options.where, norm) {}

        row_matrix weights;
        numbers<float> norm;
    };

    row_kernels(const model_config& config, const runner_options& options, void* stream)
        : where_(options.where),
          stream_(stream),
          hidden_(config.hidden),
          epsilon_(static_cast<float>(config.norm_epsilon)),
          x_(where_, rows_of_room(options) * config.hidden),
          added_(where_, rows_of_room(options) * config.hidden),
          both_(where_, rows_of_room(options) * 2 * config.intermediate) {}

    // Rows that what is computed needs room for.
    static std::int64_t rows_of_room(const runner_options& options) { return options.most_tokens; }

    // Of a step that sampled nothing, a sum may still wait, which nobody wants.
    void begin(const step&) { waits_ = false; }

    void look_up(const table& from, const int* ids, const row_view<float>& out) {
        std::visit(
            [&]<class T>(const plain_weight_rows<T>& rows) {
                embed<T, float>::launch(
                    where_, {.table = as_rows(rows.values, rows.rows, rows.columns), .ids = ids, .out = out}, stream_);
            },
            from.view());
    }

    // out = x, normed.
    void normalise(const numbers<float>& weight, const numbers<float>& x, int rows, float* out) {
        const auto view = [&](float* values) { return as_rows(values, rows, hidden_); };
        rms_norm_problem<float> p{.x = as_rows<const float>(x.data(), rows, hidden_),
                                  .weight = weight.data(),
                                  .out = view(out),
                                  .epsilon = epsilon_};
        if (waits_) {
            p.x = as_rows<const float>(added_.data(), rows, hidden_);
            p.residual = view(x.data());
            waits_ = false;
        }
        rms_norm<float>::launch(where_, p, stream_);
    }

    void multiply(const matrix& with, const float* x, int rows, float* out, const float* bias = nullptr) {
        std::visit(
            [&]<class Weights>(const Weights& weights) {
                linear<float, Weights, float>::launch(where_,
                                                      {.x = as_rows(x, rows, weights.columns),
                                                       .weights = weights,
                                                       .bias = bias,
                                                       .out = as_rows(out, rows, weights.rows)},
                                                      stream_);
            },
            with.view());
    }

    void multiply_normed(const normed_matrix& with, const numbers<float>& x, int rows, float* out, const float* bias) {
        normalise(with.norm, x, rows, x_.data());
        multiply(with.weights, x_.data(), rows, out, bias);
    }

    // silu(gate) * up, of a matrix that has the rows of both.
    void multiply_gated(const normed_matrix& with, const numbers<float>& x, int rows, float* out) {
        const std::int64_t columns = with.weights.rows() / 2;
        multiply_normed(with, x, rows, both_.data(), nullptr);
        gated_activation<float>::launch(where_,
                                        {.gate = gate_of<const float>(both_.data(), rows, columns),
                                         .up = up_of<const float>(both_.data(), rows, columns),
                                         .out = as_rows(out, rows, columns)},
                                        stream_);
    }

    // out += product. The sum waits for the norm that comes next, which adds it on its way.
    void multiply_added(const matrix& with, const float* x, int rows, numbers<float>&) {
        multiply(with, x, rows, added_.data());
        waits_ = true;
    }

    void attend(const attention_problem<float>& p, int window) {
        if (window == 0) {
            paged_rows<float, causal_mask>::launch(where_, p, {}, {}, stream_);
        } else {
            paged_rows<float, window_mask>::launch(where_, p, {window - 1, 0}, {}, stream_);
        }
    }

  private:
    world where_;
    void* stream_;
    std::int64_t hidden_;
    float epsilon_;
    numbers<float> x_, added_, both_;  // rows that are normed; a product that waits; gate and up
    bool waits_ = false;
};

}  // namespace imbrex::engine
