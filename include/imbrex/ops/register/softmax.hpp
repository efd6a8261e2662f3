// Softmax along the rows of a register tile: in one go (`softmax`), and the online softmax of FlashAttention over rows
// that arrive tile by tile (`online_softmax`). Variants for one kernel are beside that kernel, built on online_softmax
// (kernels/attention/hopper_softmax.hpp: lazy rescaling, integer row maximum, one row after the other).
//
// Exponentials are base 2: e^x = 2^(x log2 e), with the factor folded into the scale, since the hardware has ex2 and
// not exp. A row whose elements are all masked (-infinity) gives zeros, not NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <limits>

namespace imbrex {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
inline constexpr float log2_of_e = 1.44269504088896340736f;

// The factor that turns scores into base-2 exponents: scale * log2 e. Computed on the host it needs no register.
struct softmax_scale_log2 {
    float value;
};

template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void softmax(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& tile, float scale = 1.0f,
                           source here = source::current()) {
    hw::row_fragment<float, Rows, Warps> row_max;
    hw::row_fragment<float, Rows, Warps> sum;
    const float factor = scale * log2_of_e;
    map(
        scope, tile, [&](float x) { return x * factor; }, here);
    reduce_rows(scope, row_max, tile, functional::maximum{}, minus_infinity, here);
    map(
        scope, row_max, [](float x) { return x == minus_infinity ? 0.0f : x; }, here);
    combine_with_rows(
        scope, tile, row_max, [](float x, float new_max) { return hw::exp2(x - new_max); }, here);
    reduce_rows(scope, sum, tile, functional::add{}, 0.0f, here);
    map(
        scope, sum, [](float x) { return x == 0.0f ? 0.0f : hw::reciprocal(x); }, here);
    combine_with_rows(scope, tile, sum, functional::multiply{}, here);
}

// Online softmax over rows that arrive tile by tile, with an accumulated output (the core of FlashAttention). `step`
// turns a tile of scores into probabilities and rescales the output when the row maximum grows; `finish` divides by the
// row sums. The base-2 LSE is available for merging partial results.
//
// The row maximum starts at a very small finite number instead of -infinity: rows that have seen only -infinity need no
// special case, since their probabilities are zero, and so is a sum that is rescaled for the first score. Scores below
// it count as masked.
template <int Rows, class Scope>
class online_softmax {
  public:
    static constexpr int warps = Scope::warps;
    static constexpr int rows = Rows;
    static constexpr float initial_row_max = -1e30f;
    template <int Columns>
    using tile = hw::fragment<float, Rows, Columns, warps>;
    using row_values = hw::row_fragment<float, Rows, warps>;

    IMBREX_KERNEL online_softmax(const Scope& scope, float scale, source here = source::current())
        : online_softmax(scope, softmax_scale_log2{scale * log2_of_e}, here) {}
    IMBREX_KERNEL online_softmax(const Scope& scope, softmax_scale_log2 factor, source here = source::current())
        : scale_log2_(factor.value) {
        fill(scope, row_max_, initial_row_max, here);
        fill(scope, row_sum_, 0.0f, here);
    }

    template <int Columns, int OutColumns>
    IMBREX_KERNEL void step(const Scope& scope, tile<Columns>& scores, tile<OutColumns>& out,
                            source here = source::current()) {
        exp_and_sum(
            scope, scores,
            [&](const auto& factors) { combine_with_rows(scope, out, factors, functional::multiply{}, here); }, here);
    }

    // The same for an output that is not available yet: `rescale` receives the factors of its rows.
    template <int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, tile<Columns>& scores, Rescale rescale,
                                   source here = source::current()) {
        row_values new_max = row_max_;
        fold_rows(scope, new_max, scores, functional::maximum{}, here);
        finish_rows(scope, new_max, functional::maximum{}, here);
        rescale_to(scope, new_max, rescale, here);
        exponentiate(scope, scores, here);
        fold_rows(scope, row_sum_, scores, functional::add{}, here);
    }

    template <int OutColumns>
    IMBREX_KERNEL void finish(const Scope& scope, tile<OutColumns>& out, source here = source::current()) {
        finish_row_sum(scope, here);
        row_values inverse = row_sum_;
        map(
            scope, inverse, [](float x) { return x == 0.0f ? 0.0f : hw::reciprocal(x); }, here);
        combine_with_rows(scope, out, inverse, functional::multiply{}, here);
    }

    // The same with an attention sink: one more logit in the softmax denominator of every row. It is given in base 2,
    // already scaled.
    template <int OutColumns>
    IMBREX_KERNEL void finish_with_sink(const Scope& scope, tile<OutColumns>& out, float sink_log2,
                                        source here = source::current()) {
        finish_row_sum(scope, here);
        row_values keep = row_max_;
        // Rebases the row sum to the larger of the row maximum and the sink.
        hw::visit_rows(
            scope, hw::use::update, here,
            [&](int, float& factor, float& sum, float& new_max) {
                const float own = new_max * scale_log2_;
                const float top = hw::max(own, sink_log2);
                const float share = hw::exp2(own - top);
                sum = sum * share + hw::exp2(sink_log2 - top);
                // No division: its slow path is a function call, and in a kernel with calls every loop yields at its
                // head.
                new_max = top * hw::reciprocal(scale_log2_);
                factor = share * hw::reciprocal(sum);
            },
            keep, row_sum_, row_max_);
        combine_with_rows(scope, out, keep, functional::multiply{}, here);
    }

    // After finish: the base-2 LSE of each row, log2 of the sum of 2^(scaled score); -infinity for an empty row.
    IMBREX_KERNEL row_values lse2(const Scope& scope, source here = source::current()) const {
        row_values result = row_sum_;
        hw::visit_rows(
            scope, hw::use::update, here,
            [&](int, float& sum, const float& new_max) {
                sum = sum == 0.0f ? minus_infinity : hw::log2(sum) + new_max * scale_log2_;
            },
            result, row_max_);
        return result;
    }

    // For split-KV partial results, instead of finish: the row sum relative to the row maximum, and the row maximum in
    // base 2.
    IMBREX_KERNEL void finish_row_sum(const Scope& scope, source here = source::current()) {
        finish_rows(scope, row_sum_, functional::add{}, here);
    }
    IMBREX_KERNEL const row_values& row_sum() const { return row_sum_; }
    IMBREX_KERNEL row_values row_max_log2(const Scope& scope, source here = source::current()) const {
        row_values result = row_max_;
        const float factor = scale_log2_;
        map(
            scope, result, [=](float x) { return x == initial_row_max ? minus_infinity : x * factor; }, here);
        return result;
    }

  protected:
    // Makes sums and output relative to a new row maximum.
    template <class Rescale>
    IMBREX_KERNEL void rescale_to(const Scope& scope, const row_values& new_max, Rescale rescale, source here) {
        // Subtract before scaling: where the maximum is unchanged, the factor is exactly 1.
        row_values factors = row_max_;
        combine(
            scope, factors, new_max, [&](float before, float now) { return hw::exp2((before - now) * scale_log2_); },
            here);
        combine(scope, row_sum_, factors, functional::multiply{}, here);
        row_max_ = new_max;
        rescale(factors);
    }

    // Turns scores into probabilities relative to the row maximum.
    template <int Columns>
    IMBREX_KERNEL void exponentiate(const Scope& scope, tile<Columns>& scores, source here) const {
        row_values shift = row_max_;
        map(
            scope, shift, [&](float x) { return x * scale_log2_; }, here);
        combine_with_rows(
            scope, scores, shift, [&](float x, float by) { return hw::exp2(x * scale_log2_ - by); }, here);
    }

    float scale_log2_;
    row_values row_max_;
    row_values row_sum_;
};

}  // namespace imbrex
