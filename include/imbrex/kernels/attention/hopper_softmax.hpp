// Online softmax for the Hopper attention kernel. The kernel waits for an asynchronous P V product in the middle of the
// softmax and is limited by instructions per score, so online_softmax gets
//
//   exp_and_sum<wait point>      a point up to which the compiler may not delay instructions: they overlap P V
//   lazy rescaling               the reference of a row moves only when a probability would exceed 2^RescaleThreshold
//   check_row_max_sign           row maximum by integer comparison, in half the instructions
//   exp_and_sum_row_by_row       a thread's rows one after the other instead of interleaved
//
// attention/tuning.hpp says which kernel uses which, and what each is worth.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax.hpp>

namespace imbrex {

// Where in the softmax to wait for the P V product. Instructions before that point overlap the product; instructions
// after it are interleaved with what follows the wait. Without a forced point the compiler waits at once.
enum class softmax_wait_point { none, after_row_max, in_first_row };

// RescaleThreshold 0: probabilities are relative to the row maximum so far. RescaleThreshold t > 0: lazy rescaling. The
// reference moves only when a score exceeds it by so much that its probability would be larger than 2^t, so that the
// output is hardly ever rescaled; the result is exact up to rounding. VoteFirst: each thread first checks its own
// scores, and only if one exceeds the threshold the row maximum is reduced across threads, which pays where many warps
// share an SM.
template <int Rows, class Scope, int RescaleThreshold = 0, bool VoteFirst = false>
class hopper_softmax : public online_softmax<Rows, Scope> {
    using base = online_softmax<Rows, Scope>;

  public:
    using base::warps;
    using typename base::row_values;
    template <int Columns>
    using tile = hw::fragment<float, Rows, Columns, warps>;

    using base::base;

    template <int Columns, int OutColumns>
    IMBREX_KERNEL void step(const Scope& scope, tile<Columns>& scores, tile<OutColumns>& out,
                            source here = source::current()) {
        exp_and_sum(
            scope, scores,
            [&](const auto& factors) { combine_with_rows(scope, out, factors, functional::multiply{}, here); }, here);
    }

    // The same for an output that is not available yet: `rescale` receives the factors of its rows, if any row needs
    // rescaling. Warps of a warpgroup may decide differently, so `rescale` must not contain warpgroup-wide operations.
    template <softmax_wait_point WaitPoint = softmax_wait_point::none, int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, tile<Columns>& scores, Rescale rescale,
                                   source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores,
            [&](auto& new_max) {
                // Two independent halves shorten the dependency chain when a wait follows.
                constexpr int half = Columns / 32 * 16;
                if constexpr (WaitPoint == softmax_wait_point::after_row_max && half > 0) {
                    row_values other = row_max_;
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
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, tile<Columns>& scores, row_max_sign sign, Rescale rescale,
                                   source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores, [&](auto& new_max) { hw::fold_row_max(scope, new_max, scores, sign.negative, here); },
            rescale, here);
    }

    // The same, one of a thread's rows after the other. `meanwhile` runs when half of the first row's probabilities are
    // computed, `rescale` at the end.
    template <int Columns, class Meanwhile, class Rescale>
    IMBREX_KERNEL void exp_and_sum_row_by_row(const Scope& scope, tile<Columns>& scores, row_max_sign sign,
                                              Meanwhile meanwhile, Rescale rescale, source here = source::current()) {
        static_assert(Columns >= 16, "imbrex: a row-by-row softmax needs at least 16 columns");
        constexpr int half = Columns / 16 * 8;
        row_values factors = row_max_;
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

  protected:
    using base::row_max_;
    using base::row_sum_;
    using base::scale_log2_;

    // `fold_max` folds the given scores into the row maximum so far.
    template <softmax_wait_point WaitPoint, int Columns, class FoldMax, class Rescale>
    IMBREX_KERNEL void exp_and_sum_with(const Scope& scope, tile<Columns>& scores, FoldMax fold_max, Rescale rescale,
                                        source here) {
        update_row_max_with(scope, fold_max, rescale, here);
        if constexpr (WaitPoint == softmax_wait_point::after_row_max) settle_row_max(scope, here);
        this->exponentiate(scope, scores, here);
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
    IMBREX_KERNEL void sum_up(const Scope& scope, const tile<Columns>& probabilities, source here) {
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
            scope, hw::use::read, here, [&](int, const float& new_max) { all += new_max - 2 * base::initial_row_max; },
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
        row_values new_max = row_max_;
        fold_max(new_max);
        const auto update = [&] {
            finish_rows(scope, new_max, functional::maximum{}, here);
            if constexpr (RescaleThreshold > 0 && !VoteFirst) {
                combine(
                    scope, new_max, row_max_,
                    [&](float now, float before) { return exceeds(now, before) ? now : before; }, here);
            }
            this->rescale_to(scope, new_max, rescale, here);
        };
        if constexpr (VoteFirst) {
            row_values found = new_max;
            combine(
                scope, found, row_max_, [&](float now, float before) { return exceeds(now, before) ? 1.0f : 0.0f; },
                here);
            hw::if_any_row(
                scope, found, [](float one) { return one != 0; }, update, here);
        } else {
            update();
        }
    }
};

}  // namespace imbrex
