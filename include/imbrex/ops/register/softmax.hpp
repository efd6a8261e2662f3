// Softmax along the rows of a register tile: at once, when a tile has whole rows, and online, when rows come in pieces.
//
// The exponentials are powers of two: e^x = 2^(x log2 e), with the factor folded into the scale, since the hardware has
// 2^x and not e^x. A row all of whose elements are masked (-infinity) gives zeros, not NaN.
#pragma once

#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/held_rows.hpp>
#include <imbrex/hw/largest.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <limits>

namespace imbrex {

inline constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
inline constexpr float log2_of_e = 1.44269504088896340736f;

// What scores are multiplied with to be exponents of 2: their scale times log2 e. Said by whoever knows it before the kernel
// runs, it needs no register.
struct exponent_factor {
    float value;
};

// tile = softmax(scale * tile), row by row.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void softmax(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& tile, float scale = 1.0f,
                           source here = source::current()) {
    hw::row_fragment<float, Rows, Warps> largest;
    hw::row_fragment<float, Rows, Warps> sum;
    const float factor = scale * log2_of_e;
    map(
        scope, tile, [&](float x) { return x * factor; }, here);
    reduce_rows(scope, largest, tile, maximum{}, minus_infinity, here);
    map(
        scope, largest, [](float x) { return x == minus_infinity ? 0.0f : x; }, here);
    combine_with_rows(
        scope, tile, largest, [](float x, float most) { return hw::exp2(x - most); }, here);
    reduce_rows(scope, sum, tile, add{}, 0.0f, here);
    map(
        scope, sum, [](float x) { return x == 0.0f ? 0.0f : hw::reciprocal(x); }, here);
    combine_with_rows(scope, tile, sum, multiply{}, here);
}

// When who waits for something else in the middle of a softmax begins to wait. What is computed before hides under what is waited
// for, and what is computed afterwards hides what follows: other instructions find room between exponentials. The compiler
// by itself would begin at once.
enum class softmax_pause { never, when_largest_are_known, in_first_row };

// Softmax over rows that come tile by tile, weighing an output that is accumulated meanwhile (the heart of attention).
// `step` turns a tile of scores into weights and rescales the output for a larger maximum; `finish` divides by the
// sums. The base-2 logarithm of each row's sum of exponentials is left for whoever merges partial results.
//
// Before any score a row's largest is one far below all, and not -infinity: then nothing has to be asked about rows that have
// seen nothing but -infinity. Their weights are zero all the same, and so is a sum that is rescaled for the first score. Scores
// below it have no weight.
//
// Weights are relative to the largest score of their row so far. With some slack, they are so to one of the largest: a score that
// exceeds it by less than makes a weight of 2^Slack is not taken note of. Nothing is lost by that, and what was accumulated
// before hardly ever has to be rescaled. With LookFirst each thread sees for itself whether any of the scores that it holds does, and
// only if so a row's are brought together, which pays where many warps share a multiprocessor.
template <int Rows, class Scope, int Slack = 0, bool LookFirst = false>
class online_softmax {
  public:
    static constexpr int warps = Scope::warps;
    static constexpr int rows = Rows;
    static constexpr float nothing_yet = -1e30f;

    IMBREX_KERNEL online_softmax(const Scope& scope, float scale, source here = source::current())
        : online_softmax(scope, exponent_factor{scale * log2_of_e}, here) {}
    IMBREX_KERNEL online_softmax(const Scope& scope, exponent_factor factor, source here = source::current())
        : factor_(factor.value) {
        fill(scope, largest_, nothing_yet, here);
        fill(scope, sum_, 0.0f, here);
    }

    template <int Columns, int OutColumns>
    IMBREX_KERNEL void step(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                            hw::fragment<float, Rows, OutColumns, warps>& out, source here = source::current()) {
        weigh(
            scope, scores, [&](const auto& factors) { combine_with_rows(scope, out, factors, multiply{}, here); },
            here);
    }

    // The same for an output that cannot be touched yet: `rescale` is told what its rows are to be multiplied with, if anything. The
    // warps of a group need not agree on that: it must not do what they can only do together. Who waits next says when.
    template <softmax_pause Pause = softmax_pause::never, int Columns, class Rescale>
    IMBREX_KERNEL void weigh(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores, Rescale rescale,
                             source here = source::current()) {
        weigh_by<Pause>(
            scope, scores,
            [&](auto& most) {
                // Half of a row's and the other half are looked through beside one another if somebody waits for the result.
                constexpr int half = Columns / 32 * 16;
                if constexpr (Pause == softmax_pause::when_largest_are_known && half > 0) {
                    hw::row_fragment<float, Rows, warps> other = largest_;
                    fold_rows(scope, most, imbrex::columns_of<0, half>(scope, scores, here), maximum{}, here);
                    fold_rows(scope, other, imbrex::columns_of<half, Columns - half>(scope, scores, here), maximum{},
                              here);
                    combine(scope, most, other, maximum{}, here);
                } else {
                    fold_rows(scope, most, scores, maximum{}, here);
                }
            },
            rescale, here);
    }

    // What can be known of rows before their next scores are there. Who finds it out meanwhile, and says it to `weigh`, has the
    // largest of them in half the instructions, of rows that have seen a score that is not negative.
    struct outlook {
        bool negative;  // any row of the warp
    };
    IMBREX_KERNEL outlook look_ahead(const Scope& scope, source here = source::current()) const {
        return {hw::any_negative(scope, largest_, here)};
    }
    template <softmax_pause Pause = softmax_pause::never, int Columns, class Rescale>
    IMBREX_KERNEL void weigh(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores, outlook ahead,
                             Rescale rescale, source here = source::current()) {
        weigh_by<Pause>(
            scope, scores, [&](auto& most) { hw::fold_rows_largest(scope, most, scores, ahead.negative, here); },
            rescale, here);
    }

    // The same, one row after the other of those that a thread holds: `meanwhile` is done when half of the first one's weights are
    // made, and `rescale` at the end.
    template <int Columns, class Meanwhile, class Rescale>
    IMBREX_KERNEL void weigh_in_turn(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                     outlook ahead, Meanwhile meanwhile, Rescale rescale,
                                     source here = source::current()) {
        static_assert(Columns >= 16, "imbrex: rows that are weighed in turn have two halves of 8 columns at least");
        constexpr int half = Columns / 16 * 8;
        hw::row_fragment<float, Rows, warps> factors = largest_;
        const auto begin = [&](const auto& row, float& largest, float& sum, float& factor) {
            float most = row.joined(hw::largest_held(row, largest, ahead.negative), maximum{});
            if constexpr (Slack > 0) most = exceeds(most, largest) ? most : largest;
            factor = hw::exp2((largest - most) * factor_);
            sum *= factor;
            largest = most;
        };
        const auto first_half = [&](const auto& row, float largest, float& sum) {
            weigh_held<0, half>(row, largest, sum);
        };
        const auto second_half = [&](const auto& row, float largest, float& sum) {
            weigh_held<half, Columns - half>(row, largest, sum);
        };
        hw::visit_held_rows<0>(scope, here, begin, scores, largest_, sum_, factors);
        hw::visit_held_rows<0>(scope, here, first_half, scores, largest_, sum_);
        settle_first_sum(scope, here);
        meanwhile();
        hw::visit_held_rows<0>(scope, here, second_half, scores, largest_, sum_);
        hw::visit_held_rows<1>(scope, here, begin, scores, largest_, sum_, factors);
        hw::visit_held_rows<1>(scope, here, first_half, scores, largest_, sum_);
        hw::visit_held_rows<1>(scope, here, second_half, scores, largest_, sum_);
        rescale(factors);
    }

    template <int OutColumns>
    IMBREX_KERNEL void finish(const Scope& scope, hw::fragment<float, Rows, OutColumns, warps>& out,
                              source here = source::current()) {
        finish_rows(scope, sum_, add{}, here);
        hw::row_fragment<float, Rows, warps> inverse = sum_;
        map(
            scope, inverse, [](float x) { return x == 0.0f ? 0.0f : hw::reciprocal(x); }, here);
        combine_with_rows(scope, out, inverse, multiply{}, here);
    }

    // The same with one more score in every row, which has no value: a sink that takes up weight. It is given as a power of 2,
    // already scaled.
    template <int OutColumns>
    IMBREX_KERNEL void finish_with_sink(const Scope& scope, hw::fragment<float, Rows, OutColumns, warps>& out,
                                        float sink_log2, source here = source::current()) {
        finish_rows(scope, sum_, add{}, here);
        hw::row_fragment<float, Rows, warps> keep = largest_;
        // What was summed relative to the largest score is taken relative to the larger of that and the sink.
        hw::visit_rows(
            scope, hw::use::update, here,
            [&](int, float& factor, float& sum, float& most) {
                const float own = most * factor_;
                const float top = hw::max(own, sink_log2);
                const float share = hw::exp2(own - top);
                sum = sum * share + hw::exp2(sink_log2 - top);
                // Not a division: its rare cases are a function, and in a kernel that calls one every loop yields at its head.
                most = top * hw::reciprocal(factor_);
                factor = share * hw::reciprocal(sum);
            },
            keep, sum_, largest_);
        combine_with_rows(scope, out, keep, multiply{}, here);
    }

    // After finish: log2 of the sum of 2^(scaled score) over each row; -infinity for a row with nothing in it.
    IMBREX_KERNEL hw::row_fragment<float, Rows, warps> log2_sum(const Scope& scope,
                                                                source here = source::current()) const {
        hw::row_fragment<float, Rows, warps> result = sum_;
        hw::visit_rows(
            scope, hw::use::update, here,
            [&](int, float& sum, const float& most) {
                sum = sum == 0.0f ? minus_infinity : hw::log2(sum) + most * factor_;
            },
            result, largest_);
        return result;
    }

    // For partial results, instead of finish: each row's sum, relative to its largest score, and that as a power of 2.
    IMBREX_KERNEL void finish_sums(const Scope& scope, source here = source::current()) {
        finish_rows(scope, sum_, add{}, here);
    }
    IMBREX_KERNEL const hw::row_fragment<float, Rows, warps>& sums() const { return sum_; }
    IMBREX_KERNEL hw::row_fragment<float, Rows, warps> largest_log2(const Scope& scope,
                                                                    source here = source::current()) const {
        hw::row_fragment<float, Rows, warps> result = largest_;
        const float factor = factor_;
        map(
            scope, result, [=](float x) { return x == nothing_yet ? minus_infinity : x * factor; }, here);
        return result;
    }

  protected:
    // `look` finds out the largest of a row's scores so far and of those that are given.
    template <softmax_pause Pause, int Columns, class Look, class Rescale>
    IMBREX_KERNEL void weigh_by(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores, Look look,
                                Rescale rescale, source here) {
        follow(scope, look, rescale, here);
        if constexpr (Pause == softmax_pause::when_largest_are_known) settle_largest(scope, here);
        hw::row_fragment<float, Rows, warps> shift = largest_;
        map(
            scope, shift, [&](float x) { return x * factor_; }, here);
        combine_with_rows(
            scope, scores, shift, [&](float x, float by) { return hw::exp2(x * factor_ - by); }, here);
        sum_up<Pause>(scope, scores, here);
    }

    // Scores of a row become weights, which are added to its sum.
    template <int First, int Count, class Row>
    IMBREX_KERNEL void weigh_held(const Row& row, float largest, float& sum) const {
        const float shift = largest * factor_;
        row.template each_two<First, Count>([&](float& one, float& other) {
            one = hw::exp2(one * factor_ - shift);
            other = hw::exp2(other * factor_ - shift);
            sum += one;
            sum += other;
        });
    }

    template <softmax_pause Pause, int Columns>
    IMBREX_KERNEL void sum_up(const Scope& scope, const hw::fragment<float, Rows, Columns, warps>& weights,
                              source here) {
        constexpr int half = Columns / 32 * 16;
        if constexpr (Pause == softmax_pause::in_first_row && half > 0) {
            fold_rows(scope, sum_, imbrex::columns_of<0, half>(scope, weights, here), add{}, here);
            settle_first_sum(scope, here);
            fold_rows(scope, sum_, imbrex::columns_of<half, Columns - half>(scope, weights, here), add{}, here);
        } else {
            fold_rows(scope, sum_, weights, add{}, here);
        }
    }

    // The largest scores of all rows that a thread holds exist here, and not only where they are used.
    IMBREX_KERNEL void settle_largest(const Scope& scope, source here) const {
        float all = 0.0f;
        hw::visit_rows(
            scope, hw::use::read, here, [&](int, const float& most) { all += most - 2 * nothing_yet; }, largest_);
        hw::settle_sum(all);
    }

    // The same of what has been summed of the first.
    IMBREX_KERNEL void settle_first_sum(const Scope& scope, source here) const {
        bool first = true;
        hw::visit_rows(
            scope, hw::use::read, here,
            [&](int, const float& sum) {
                if (first) hw::settle_sum(sum);
                first = false;
            },
            sum_);
    }

    IMBREX_KERNEL bool exceeds(float now, float before) const {
        return (now - before) * factor_ > static_cast<float>(Slack);
    }

    // Takes note of scores that are larger than those before, by more than the slack.
    template <class Look, class Rescale>
    IMBREX_KERNEL void follow(const Scope& scope, Look look, Rescale rescale, source here) {
        hw::row_fragment<float, Rows, warps> most = largest_;
        look(most);
        const auto take_note = [&] {
            finish_rows(scope, most, maximum{}, here);
            if constexpr (Slack > 0 && !LookFirst) {
                combine(
                    scope, most, largest_, [&](float now, float before) { return exceeds(now, before) ? now : before; },
                    here);
            }
            become_relative_to(scope, most, rescale, here);
        };
        if constexpr (LookFirst) {
            hw::row_fragment<float, Rows, warps> found = most;
            combine(
                scope, found, largest_, [&](float now, float before) { return exceeds(now, before) ? 1.0f : 0.0f; },
                here);
            hw::if_any_row(
                scope, found, [](float one) { return one != 0; }, take_note, here);
        } else {
            take_note();
        }
    }

    template <class Rescale>
    IMBREX_KERNEL void become_relative_to(const Scope& scope, const hw::row_fragment<float, Rows, warps>& most,
                                          Rescale rescale, source here) {
        // The difference before the factor: where the largest stays what it was, nothing is rescaled, and exactly so.
        hw::row_fragment<float, Rows, warps> factors = largest_;
        combine(
            scope, factors, most, [&](float before, float now) { return hw::exp2((before - now) * factor_); }, here);
        combine(scope, sum_, factors, multiply{}, here);
        largest_ = most;
        rescale(factors);
    }

    float factor_;
    hw::row_fragment<float, Rows, warps> largest_;
    hw::row_fragment<float, Rows, warps> sum_;
};

}  // namespace imbrex
