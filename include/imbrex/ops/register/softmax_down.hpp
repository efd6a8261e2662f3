// Softmax down the columns of a register tile, when they come in pieces: what online_softmax (ops/register/softmax.hpp) does along
// rows, for who multiplies with the matrix turned round. At warp scope.
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
class online_softmax_down {
  public:
    using values = column_values<float, Columns>;
    static constexpr float nothing_yet = online_softmax<16, warp>::nothing_yet;

    IMBREX_KERNEL online_softmax_down(const warp& scope, float scale, source here = source::current())
        : factor_(scale * log2_of_e) {
        fill(scope, largest_, nothing_yet, here);
        fill(scope, sum_, 0.0f, here);
    }

    // A tile of scores becomes weights. `rescale` is told what the columns of the sums so far are to be multiplied with.
    template <int Rows, class Rescale>
    IMBREX_KERNEL void weigh(const warp& scope, warp_tile<float, Rows, Columns>& scores, const Rescale& rescale,
                             source here = source::current()) {
        values most = largest_;
        hw::fold_columns(scope, most, scores, maximum{}, here);
        hw::combine_columns(scope, most, maximum{}, here);
        // The difference before the factor: where the largest stays what it was, nothing is rescaled, and exactly so.
        values factors = largest_;
        combine(
            scope, factors, most, [&](float before, float now) { return hw::exp2((before - now) * factor_); }, here);
        combine(scope, sum_, factors, multiply{}, here);
        largest_ = most;
        rescale(factors);
        values shift = largest_;
        map(
            scope, shift, [&](float x) { return x * factor_; }, here);
        combine_with_columns(
            scope, scores, shift, [&](float x, float by) { return hw::exp2(x * factor_ - by); }, here);
        hw::fold_columns(scope, sum_, scores, add{}, here);
    }

    // For partial results: each column's sum, relative to its largest score, and that as a power of 2.
    IMBREX_KERNEL values finished_sums(const warp& scope, source here = source::current()) const {
        values result = sum_;
        hw::combine_columns(scope, result, add{}, here);
        return result;
    }
    IMBREX_KERNEL values largest_log2(const warp& scope, source here = source::current()) const {
        values result = largest_;
        const float factor = factor_;
        map(
            scope, result, [=](float x) { return x == nothing_yet ? minus_infinity : x * factor; }, here);
        return result;
    }

  private:
    float factor_;
    values largest_;
    values sum_;
};

}  // namespace imbrex
