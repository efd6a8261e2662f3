// Online softmax of the 8-bit attention kernel. The probabilities become e4m3, so they are relative to a reference 8
// below the row maximum (base 2): the largest is 256, and the smallest nonzero ones 2^-9. Row sums contain the same
// factor and are sums of the unrounded probabilities, so it cancels in the output; the LSE, log2(sum) + reference,
// needs no correction either.
//
// The reference is a base-2 exponent rather than a product q . k, because the scale of the products may change from key
// tile to key tile.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/kernels/attention/hopper_softmax.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>

#include <type_traits>

namespace imbrex {

// Scores times `factor` are base-2 exponents. Zero and less count as the smallest scale, so that the inverse is finite.
struct fp8_score_scale {
    float factor;
    float inverse;

    IMBREX_KERNEL explicit fp8_score_scale(float scale_log2)
        : factor(hw::max(scale_log2, 1e-30f)), inverse(hw::reciprocal(factor)) {}
};

template <int Rows, class Scope>
class fp8_softmax : public hopper_softmax<Rows, Scope> {
    using base = hopper_softmax<Rows, Scope>;

  public:
    using typename base::row_max_sign;
    using typename base::row_values;
    template <int Columns>
    using tile = typename base::template tile<Columns>;
    static constexpr float largest_exponent = 8;

    IMBREX_KERNEL explicit fp8_softmax(const Scope& scope, source here = source::current())
        : base(scope, softmax_scale_log2{1.0f}, here) {}

    // Scores become probabilities; `rescale` receives the factors of the output's rows. The second form has the row
    // maximum by integer comparison (hopper_softmax.hpp).
    template <softmax_wait_point WaitPoint, int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, tile<Columns>& scores, const fp8_score_scale& scale,
                                   Rescale rescale, source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores, scale,
            [&](auto& row_max) { fold_rows(scope, row_max, scores, functional::maximum{}, here); }, rescale, here);
    }
    template <softmax_wait_point WaitPoint, int Columns, class Rescale>
    IMBREX_KERNEL void exp_and_sum(const Scope& scope, tile<Columns>& scores, const fp8_score_scale& scale,
                                   row_max_sign sign, Rescale rescale, source here = source::current()) {
        exp_and_sum_with<WaitPoint>(
            scope, scores, scale, [&](auto& row_max) { hw::fold_row_max(scope, row_max, scores, sign.negative, here); },
            rescale, here);
    }

    // The same, one of a thread's rows after the other. `meanwhile` runs at four points, when a half of a row's
    // probabilities is computed, with the number of the point; `rescale` at the end.
    template <int Columns, class Meanwhile, class Rescale>
    IMBREX_KERNEL void exp_and_sum_row_by_row(const Scope& scope, tile<Columns>& scores, const fp8_score_scale& scale,
                                              row_max_sign sign, Meanwhile meanwhile, Rescale rescale,
                                              source here = source::current()) {
        constexpr int half = Columns / 16 * 8;
        row_values factors = row_max_;
        const auto begin = [&](const auto& row, float& reference, float& sum, float& factor) {
            const float from = score_at(reference, scale);
            const float row_max =
                row.quad_allreduce(hw::thread_row_max(row, from, sign.negative), functional::maximum{});
            const float now = reference_of(row_max, reference, scale);
            factor = hw::exp2(reference - now);
            sum *= factor;
            reference = now;
        };
        const auto first_half = [&](const auto& row, float reference, float& sum) {
            exp_and_sum_part<0, half>(row, reference, sum, scale.factor);
        };
        const auto second_half = [&](const auto& row, float reference, float& sum) {
            exp_and_sum_part<half, Columns - half>(row, reference, sum, scale.factor);
        };
        hw::visit_thread_rows<0>(scope, here, begin, scores, row_max_, row_sum_, factors);
        hw::visit_thread_rows<0>(scope, here, first_half, scores, row_max_, row_sum_);
        this->settle_first_sum(scope, here);
        meanwhile(std::integral_constant<int, 0>{});
        hw::visit_thread_rows<0>(scope, here, second_half, scores, row_max_, row_sum_);
        meanwhile(std::integral_constant<int, 1>{});
        hw::visit_thread_rows<1>(scope, here, begin, scores, row_max_, row_sum_, factors);
        hw::visit_thread_rows<1>(scope, here, first_half, scores, row_max_, row_sum_);
        meanwhile(std::integral_constant<int, 2>{});
        hw::visit_thread_rows<1>(scope, here, second_half, scores, row_max_, row_sum_);
        meanwhile(std::integral_constant<int, 3>{});
        rescale(factors);
    }

    // The sign of the scores that correspond to the references, checked before the next scores are available.
    IMBREX_KERNEL row_max_sign check_row_max_sign(const Scope& scope, source here = source::current()) const {
        row_values row_max = row_max_;
        map(
            scope, row_max, [](float reference) { return reference + largest_exponent; }, here);
        return {hw::any_negative(scope, row_max, here)};
    }

    // Also multiplies the output by the scale of V.
    template <int OutColumns>
    IMBREX_KERNEL void finish(const Scope& scope, tile<OutColumns>& out, source here = source::current()) {
        this->finish_row_sum(scope, here);
        row_values factors = row_sum_;
        map(
            scope, factors, [&](float sum) { return sum == 0.0f ? 0.0f : v_scale * hw::reciprocal(sum); }, here);
        combine_with_rows(scope, out, factors, functional::multiply{}, here);
    }
    template <int OutColumns>
    IMBREX_KERNEL void finish_with_sink(const Scope& scope, tile<OutColumns>& out, float sink_log2,
                                        source here = source::current()) {
        base::finish_with_sink(scope, out, sink_log2, here);
        map(
            scope, out, [&](float x) { return x * v_scale; }, here);
    }

    IMBREX_KERNEL const row_values& references() const { return row_max_; }

    float v_scale = 1.0f;  // of the output accumulated so far

  private:
    using base::row_max_;  // the references
    using base::row_sum_;

    template <softmax_wait_point WaitPoint, int Columns, class FoldMax, class Rescale>
    IMBREX_KERNEL void exp_and_sum_with(const Scope& scope, tile<Columns>& scores, const fp8_score_scale& scale,
                                        FoldMax fold_max, Rescale rescale, source here) {
        row_values now = row_max_;
        map(
            scope, now, [&](float reference) { return score_at(reference, scale); }, here);
        fold_max(now);
        finish_rows(scope, now, functional::maximum{}, here);
        combine(
            scope, now, row_max_,
            [&](float row_max, float reference) { return reference_of(row_max, reference, scale); }, here);
        this->rescale_to(scope, now, rescale, here);
        if constexpr (WaitPoint == softmax_wait_point::after_row_max) this->settle_row_max(scope, here);
        const float factor = scale.factor;
        combine_with_rows(
            scope, scores, row_max_, [=](float x, float reference) { return hw::exp2(x * factor - reference); }, here);
        this->template sum_up<WaitPoint>(scope, scores, here);
    }

    // The score whose probability is 2^8, and the reference for a row maximum: never below the one before.
    IMBREX_KERNEL static float score_at(float reference, const fp8_score_scale& scale) {
        return (reference + largest_exponent) * scale.inverse;
    }
    IMBREX_KERNEL static float reference_of(float row_max, float before, const fp8_score_scale& scale) {
        return hw::max(before, hw::fma(row_max, scale.factor, -largest_exponent));
    }

    template <int First, int Count, class Row>
    IMBREX_KERNEL static void exp_and_sum_part(const Row& row, float reference, float& sum, float factor) {
        row.template for_each_pair<First, Count>([&](float& one, float& other) {
            one = hw::exp2(one * factor - reference);
            other = hw::exp2(other * factor - reference);
            sum += one;
            sum += other;
        });
    }
};

}  // namespace imbrex
