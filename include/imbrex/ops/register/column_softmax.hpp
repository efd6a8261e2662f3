// Online softmax down the columns of a register tile: online_softmax (ops/register/softmax.hpp) for kernels that
// compute the transposed product K Q^T (swap-AB). Warp scope.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

template <int Columns>
class online_column_softmax {
  public:
    using values = column_values<float, Columns>;
    static constexpr float initial_row_max = online_softmax<16, warp>::initial_row_max;

    IMBREX_KERNEL online_column_softmax(const warp& scope, float scale, source here = source::current())
        : scale_log2_(scale * log2_of_e) {
        fill(scope, column_max_, initial_row_max, here);
        fill(scope, column_sum_, 0.0f, here);
    }

    // Turns a tile of scores into probabilities. `rescale` receives the factors of the columns accumulated so far.
    template <int Rows, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const warp& scope, warp_tile<float, Rows, Columns>& scores, const Rescale& rescale,
                                   source here = source::current()) {
        values column_max = column_max_;
        hw::fold_columns(scope, column_max, scores, functional::maximum{}, here);
        hw::combine_columns(scope, column_max, functional::maximum{}, here);
        // Subtract before scaling: where the maximum is unchanged, the factor is exactly 1.
        values factors = column_max_;
        combine(
            scope, factors, column_max, [&](float before, float now) { return hw::exp2((before - now) * scale_log2_); },
            here);
        combine(scope, column_sum_, factors, functional::multiply{}, here);
        column_max_ = column_max;
        rescale(factors);
        values shift = column_max_;
        map(
            scope, shift, [&](float x) { return x * scale_log2_; }, here);
        combine_with_columns(
            scope, scores, shift, [&](float x, float by) { return hw::exp2(x * scale_log2_ - by); }, here);
        hw::fold_columns(scope, column_sum_, scores, functional::add{}, here);
    }

    // For split-KV partial results: each column's sum relative to its maximum, and the maximum in base 2.
    IMBREX_KERNEL values finished_column_sum(const warp& scope, source here = source::current()) const {
        values result = column_sum_;
        hw::combine_columns(scope, result, functional::add{}, here);
        return result;
    }
    IMBREX_KERNEL values column_max_log2(const warp& scope, source here = source::current()) const {
        values result = column_max_;
        const float factor = scale_log2_;
        map(
            scope, result, [=](float x) { return x == initial_row_max ? minus_infinity : x * factor; }, here);
        return result;
    }

  private:
    float scale_log2_;
    values column_max_;
    values column_sum_;
};

}  // namespace imbrex
