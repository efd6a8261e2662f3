// Softmax along the rows of a register tile: in one go (`softmax`), and the online softmax of FlashAttention over rows
// that arrive tile by tile (`online_softmax`), with optional lazy rescaling.
//
// Exponentials are base 2: e^x = 2^(x log2 e), with the factor folded into the scale, since the hardware has ex2 and
// not exp. A row whose elements are all masked (-infinity) gives zeros, not NaN.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/row_max.hpp>
#include <imbrex/hw/thread_rows.hpp>
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

// Where in the softmax to wait for another asynchronous operation (in attention: the P V product). Instructions before
// that point overlap the operation; instructions after it are interleaved with what follows the wait. Without a forced
// point the compiler waits at once.
enum class softmax_wait_point { none, after_row_max, in_first_row };

// Online softmax over rows that arrive tile by tile, with an accumulated output (the core of FlashAttention). `step`
// turns a tile of scores into probabilities and rescales the output when the row maximum grows; `finish` divides by the
// row sums. The base-2 LSE is available for merging partial results.
//
// The row maximum starts at a very small finite number instead of -infinity: rows that have seen only -infinity need no
// special case, since their probabilities are zero, and so is a sum that is rescaled for the first score. Scores below
// it count as masked.
//
// RescaleThreshold 0: probabilities are relative to the row maximum so far. RescaleThreshold t > 0: lazy rescaling. The
// reference moves only when a score exceeds it by so much that its probability would be larger than 2^t, so that the
// output is hardly ever rescaled; the result is exact up to rounding. VoteFirst: each thread first checks its own
// scores, and only if one exceeds the threshold the row maximum is reduced across threads, which pays where many warps
// share an SM.
template <int Rows, class Scope, int RescaleThreshold = 0, bool VoteFirst = false>
class online_softmax {
  public:
    static constexpr int warps = Scope::warps;
    static constexpr int rows = Rows;
    static constexpr float initial_row_max = -1e30f;

    IMBREX_KERNEL online_softmax(const Scope& scope, float scale, source here = source::current())
        : online_softmax(scope, softmax_scale_log2{scale * log2_of_e}, here) {}
    IMBREX_KERNEL online_softmax(const Scope& scope, softmax_scale_log2 factor, source here = source::current())
        : scale_log2_(factor.value) {
        fill(scope, row_max_, initial_row_max, here);
        fill(scope, row_sum_, 0.0f, here);
    }

    template <int Columns, int OutColumns>
    IMBREX_KERNEL void step(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                            hw::fragment<float, Rows, OutColumns, warps>& out, source here = source::current()) {
        exp_and_sum(
            scope, scores,
            [&](const auto& factors) { combine_with_rows(scope, out, factors, functional::multiply{}, here); }, here);
    }

    // The same for an output that is not available yet: `rescale` receives the factors of its rows, if any row needs
    // rescaling. Warps of a warpgroup may decide differently, so `rescale` must not contain warpgroup-wide operations.
    template <softmax_wait_point WaitPoint = softmax_wait_point::none, int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                   Rescale rescale, source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores,
            [&](auto& new_max) {
                // Two independent halves shorten the dependency chain when a wait follows.
                constexpr int half = Columns / 32 * 16;
                if constexpr (WaitPoint == softmax_wait_point::after_row_max && half > 0) {
                    hw::row_fragment<float, Rows, warps> other = row_max_;
                    fold_rows(scope, new_max, imbrex::columns_of<0, half>(scope, scores, here), functional::maximum{},
                              here);
                    fold_rows(scope, other, imbrex::columns_of<half, Columns - half>(scope, scores, here),
                              functional::maximum{}, here);
                    combine(scope, new_max, other, functional::maximum{}, here);
                } else {
                    fold_rows(scope, new_max, scores, functional::maximum{}, here);
                }
            },
            rescale, here);
    }

    // The sign of the row maxima, checked before the next scores are available. Passed to `exp_and_sum`, it halves the
    // instructions of the row maximum for rows with a nonnegative maximum.
    struct row_max_sign {
        bool negative;  // any row of the warp
    };
    IMBREX_KERNEL row_max_sign check_row_max_sign(const Scope& scope, source here = source::current()) const {
        return {hw::any_negative(scope, row_max_, here)};
    }
    template <softmax_wait_point WaitPoint = softmax_wait_point::none, int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                   row_max_sign sign, Rescale rescale, source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores, [&](auto& new_max) { hw::fold_row_max(scope, new_max, scores, sign.negative, here); },
            rescale, here);
    }

    // The same, one of a thread's rows after the other. `meanwhile` runs when half of the first row's probabilities are
    // computed, `rescale` at the end.
    template <int Columns, class Meanwhile, class Rescale>
    IMBREX_KERNEL void exp_and_sum_row_by_row(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                              row_max_sign sign, Meanwhile meanwhile, Rescale rescale,
                                              source here = source::current()) {
        static_assert(Columns >= 16, "imbrex: a row-by-row softmax needs at least 16 columns");
        constexpr int half = Columns / 16 * 8;
        hw::row_fragment<float, Rows, warps> factors = row_max_;
        const auto begin = [&](const auto& row, float& row_max, float& sum, float& factor) {
            float new_max = row.quad_allreduce(hw::thread_row_max(row, row_max, sign.negative), functional::maximum{});
            if constexpr (RescaleThreshold > 0) new_max = exceeds(new_max, row_max) ? new_max : row_max;
            factor = hw::exp2((row_max - new_max) * scale_log2_);
            sum *= factor;
            row_max = new_max;
        };
        const auto first_half = [&](const auto& row, float row_max, float& sum) {
            exp_and_sum_thread_row<0, half>(row, row_max, sum);
        };
        const auto second_half = [&](const auto& row, float row_max, float& sum) {
            exp_and_sum_thread_row<half, Columns - half>(row, row_max, sum);
        };
        hw::visit_thread_rows<0>(scope, here, begin, scores, row_max_, row_sum_, factors);
        hw::visit_thread_rows<0>(scope, here, first_half, scores, row_max_, row_sum_);
        settle_first_sum(scope, here);
        meanwhile();
        hw::visit_thread_rows<0>(scope, here, second_half, scores, row_max_, row_sum_);
        hw::visit_thread_rows<1>(scope, here, begin, scores, row_max_, row_sum_, factors);
        hw::visit_thread_rows<1>(scope, here, first_half, scores, row_max_, row_sum_);
        hw::visit_thread_rows<1>(scope, here, second_half, scores, row_max_, row_sum_);
        rescale(factors);
    }

    template <int OutColumns>
    IMBREX_KERNEL void finish(const Scope& scope, hw::fragment<float, Rows, OutColumns, warps>& out,
                              source here = source::current()) {
        finish_rows(scope, row_sum_, functional::add{}, here);
        hw::row_fragment<float, Rows, warps> inverse = row_sum_;
        map(
            scope, inverse, [](float x) { return x == 0.0f ? 0.0f : hw::reciprocal(x); }, here);
        combine_with_rows(scope, out, inverse, functional::multiply{}, here);
    }

    // The same with an attention sink: one more logit in the softmax denominator of every row. It is given in base 2,
    // already scaled.
    template <int OutColumns>
    IMBREX_KERNEL void finish_with_sink(const Scope& scope, hw::fragment<float, Rows, OutColumns, warps>& out,
                                        float sink_log2, source here = source::current()) {
        finish_rows(scope, row_sum_, functional::add{}, here);
        hw::row_fragment<float, Rows, warps> keep = row_max_;
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
    IMBREX_KERNEL hw::row_fragment<float, Rows, warps> lse2(const Scope& scope, source here = source::current()) const {
        hw::row_fragment<float, Rows, warps> result = row_sum_;
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
    IMBREX_KERNEL const hw::row_fragment<float, Rows, warps>& row_sum() const { return row_sum_; }
    IMBREX_KERNEL hw::row_fragment<float, Rows, warps> row_max_log2(const Scope& scope,
                                                                    source here = source::current()) const {
        hw::row_fragment<float, Rows, warps> result = row_max_;
        const float factor = scale_log2_;
        map(
            scope, result, [=](float x) { return x == initial_row_max ? minus_infinity : x * factor; }, here);
        return result;
    }

  protected:
    // `fold_max` folds the given scores into the row maximum so far.
    template <softmax_wait_point WaitPoint, int Columns, class FoldMax, class Rescale>
    IMBREX_KERNEL void exp_and_sum_with(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                        FoldMax fold_max, Rescale rescale, source here) {
        update_row_max_with(scope, fold_max, rescale, here);
        if constexpr (WaitPoint == softmax_wait_point::after_row_max) settle_row_max(scope, here);
        hw::row_fragment<float, Rows, warps> shift = row_max_;
        map(
            scope, shift, [&](float x) { return x * scale_log2_; }, here);
        combine_with_rows(
            scope, scores, shift, [&](float x, float by) { return hw::exp2(x * scale_log2_ - by); }, here);
        sum_up<WaitPoint>(scope, scores, here);
    }

    // Turns scores of a row into probabilities and adds them to its sum.
    template <int First, int Count, class Row>
    IMBREX_KERNEL void exp_and_sum_thread_row(const Row& row, float row_max, float& sum) const {
        const float shift = row_max * scale_log2_;
        row.template for_each_pair<First, Count>([&](float& one, float& other) {
            one = hw::exp2(one * scale_log2_ - shift);
            other = hw::exp2(other * scale_log2_ - shift);
            sum += one;
            sum += other;
        });
    }

    template <softmax_wait_point WaitPoint, int Columns>
    IMBREX_KERNEL void sum_up(const Scope& scope, const hw::fragment<float, Rows, Columns, warps>& probabilities,
                              source here) {
        constexpr int half = Columns / 32 * 16;
        if constexpr (WaitPoint == softmax_wait_point::in_first_row && half > 0) {
            fold_rows(scope, row_sum_, imbrex::columns_of<0, half>(scope, probabilities, here), functional::add{},
                      here);
            settle_first_sum(scope, here);
            fold_rows(scope, row_sum_, imbrex::columns_of<half, Columns - half>(scope, probabilities, here),
                      functional::add{}, here);
        } else {
            fold_rows(scope, row_sum_, probabilities, functional::add{}, here);
        }
    }

    // Forces the compiler to have computed the maxima of all of a thread's rows at this point.
    IMBREX_KERNEL void settle_row_max(const Scope& scope, source here) const {
        float all = 0.0f;
        hw::visit_rows(
            scope, hw::use::read, here, [&](int, const float& new_max) { all += new_max - 2 * initial_row_max; },
            row_max_);
        hw::settle_sum(all);
    }

    // The same for the partial sum of the first row.
    IMBREX_KERNEL void settle_first_sum(const Scope& scope, source here) const {
        bool first = true;
        hw::visit_rows(
            scope, hw::use::read, here,
            [&](int, const float& sum) {
                if (first) hw::settle_sum(sum);
                first = false;
            },
            row_sum_);
    }

    IMBREX_KERNEL bool exceeds(float now, float before) const {
        return (now - before) * scale_log2_ > static_cast<float>(RescaleThreshold);
    }

    // Updates the row maximum where it grows by more than the threshold.
    template <class FoldMax, class Rescale>
    IMBREX_KERNEL void update_row_max_with(const Scope& scope, FoldMax fold_max, Rescale rescale, source here) {
        hw::row_fragment<float, Rows, warps> new_max = row_max_;
        fold_max(new_max);
        const auto update = [&] {
            finish_rows(scope, new_max, functional::maximum{}, here);
            if constexpr (RescaleThreshold > 0 && !VoteFirst) {
                combine(
                    scope, new_max, row_max_,
                    [&](float now, float before) { return exceeds(now, before) ? now : before; }, here);
            }
            rescale_to(scope, new_max, rescale, here);
        };
        if constexpr (VoteFirst) {
            hw::row_fragment<float, Rows, warps> found = new_max;
            combine(
                scope, found, row_max_, [&](float now, float before) { return exceeds(now, before) ? 1.0f : 0.0f; },
                here);
            hw::if_any_row(
                scope, found, [](float one) { return one != 0; }, update, here);
        } else {
            update();
        }
    }

    template <class Rescale>
    IMBREX_KERNEL void rescale_to(const Scope& scope, const hw::row_fragment<float, Rows, warps>& new_max,
                                  Rescale rescale, source here) {
        // Subtract before scaling: where the maximum is unchanged, the factor is exactly 1.
        hw::row_fragment<float, Rows, warps> factors = row_max_;
        combine(
            scope, factors, new_max, [&](float before, float now) { return hw::exp2((before - now) * scale_log2_); },
            here);
        combine(scope, row_sum_, factors, functional::multiply{}, here);
        row_max_ = new_max;
        rescale(factors);
    }

    float scale_log2_;
    hw::row_fragment<float, Rows, warps> row_max_;
    hw::row_fragment<float, Rows, warps> row_sum_;
};

}  // namespace imbrex
