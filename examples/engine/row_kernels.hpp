// What multiplies and attends on a CPU: products by rows of weights and attention by rows, in float. Weights are kept as they are in the file or
// as asked for, and are read once for each product, which is all that it takes when there are few rows. (`tile_kernels.hpp` is the same
// for a GPU.)
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/kernels/embed.hpp>
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/paged_rows.hpp>

#include <cstdint>
#include <variant>

#include "row_matrix.hpp"
#include "runner.hpp"
#include "stacked_weights.hpp"

namespace imbrex::engine {

class row_kernels {
  public:
    using element = float;
    using matrix = row_matrix;
    using table = row_table;

    explicit row_kernels(const runner_options& options) : where_(options.where) {}

    void look_up(const table& from, const int* ids, const row_view<float>& out) {
        std::visit(
            [&]<class T>(const plain_weight_rows<T>& rows) {
                embed<T, float>::launch(
                    where_, {.table = as_rows(rows.values, rows.rows, rows.columns), .ids = ids, .out = out});
            },
            from.view());
    }

    void multiply(const matrix& with, const float* x, int rows, float* out, const float* bias = nullptr) {
        std::visit(
            [&]<class Weights>(const Weights& weights) {
                linear<float, Weights, float>::launch(where_, {.x = as_rows(x, rows, weights.columns),
                                                               .weights = weights,
                                                               .bias = bias,
                                                               .out = as_rows(out, rows, weights.rows)});
            },
            with.view());
    }

    void attend(const attention_problem<float>& p, int window) {
        if (window == 0) {
            paged_rows<float, causal_mask>::launch(where_, p);
        } else {
            paged_rows<float, window_mask>::launch(where_, p, {window - 1, 0});
        }
    }

  private:
    world where_;
};

}  // namespace imbrex::engine
