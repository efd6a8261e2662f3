// Online softmax with softcap (cap * tanh(score / cap)): a tanh polynomial where it is accurate enough. tanh would be a
// second instruction per score on the special function unit (MUFU) that already computes the exponentials.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/hopper_softmax.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax.hpp>

namespace imbrex {

// An online softmax over products that the softcap has not been applied to yet. The scale is that of capped scores.
template <int Rows, class Scope, int RescaleThreshold>
class online_softcap_softmax : public hopper_softmax<Rows, Scope, RescaleThreshold> {
    static_assert(RescaleThreshold > 0, "imbrex: online_softcap_softmax needs lazy rescaling (RescaleThreshold > 0)");
    using base = hopper_softmax<Rows, Scope, RescaleThreshold>;
    using base::row_max_;
    using base::scale_log2_;

  public:
    using base::warps;
    // Below all capped scores and their references. Their squares are finite.
    static constexpr float softcap_floor = -1e10f;
    static constexpr float masked_score = -1e15f;

    using base::base;

    // Products become probabilities. If all products of a warp are within the polynomial's limit, and none exceeds its
    // row's reference by more than the threshold, the polynomial gives the exponents. Otherwise `apply_softcap` turns
    // them into scores, relative to the row maximum.
    template <softmax_wait_point WaitPoint = softmax_wait_point::none, int Columns, class ApplySoftcap, class Rescale>
    IMBREX_KERNEL void exp_and_sum_softcap(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& products,
                                           const softcap_polynomial& polynomial, ApplySoftcap apply_softcap,
                                           Rescale rescale, source here = source::current()) {
        hw::row_fragment<float, Rows, warps> farthest;
        fill(scope, farthest, 0.0f, here);
        fold_rows(
            scope, farthest, products, [](float row_max, float x) { return hw::max(row_max, hw::abs(x)); }, here);
        combine(
            scope, farthest, row_max_,
            [&](float row_max, float before) {
                const bool near = (row_max <= polynomial.limit) & (row_max * polynomial.first - before * scale_log2_ <=
                                                                   static_cast<float>(RescaleThreshold));
                return near ? 0.0f : 1.0f;
            },
            here);
        softcap_polynomial used = polynomial;
        hw::if_any_row(
            scope, farthest, [](float one) { return one != 0; },
            [&] {
                map(scope, products, apply_softcap, here);
                update_row_max(scope, products, rescale, here);
                make_linear(scope, products, used, here);
            },
            here);
        exp_and_sum_polynomial<WaitPoint>(scope, products, used, here);
    }

  private:
    // From here on scores take the same path as products, with a linear polynomial. Infinity must not be squared.
    template <int Columns>
    IMBREX_KERNEL void make_linear(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                   softcap_polynomial& used, source here) const {
        map(
            scope, scores, [](float x) { return x == minus_infinity ? masked_score : x; }, here);
        used.first = scale_log2_;
        used.third = used.fifth = 0.0f;
    }

    template <softmax_wait_point WaitPoint, int Columns>
    IMBREX_KERNEL void exp_and_sum_polynomial(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& products,
                                              const softcap_polynomial& polynomial, source here) {
        hw::row_fragment<float, Rows, warps> shift = row_max_;
        map(
            scope, shift, [&](float x) { return hw::max(x, softcap_floor) * scale_log2_; }, here);
        combine_with_rows(
            scope, products, shift, [&](float x, float by) { return hw::exp2(polynomial.relative_to(by, x)); }, here);
        this->template sum_up<WaitPoint>(scope, products, here);
    }

    // Updates the row maximum without a threshold.
    template <int Columns, class Rescale>
    IMBREX_KERNEL void update_row_max(const Scope& scope, const hw::fragment<float, Rows, Columns, warps>& scores,
                                      Rescale rescale, source here) {
        hw::row_fragment<float, Rows, warps> row_max = row_max_;
        fold_rows(scope, row_max, scores, functional::maximum{}, here);
        finish_rows(scope, row_max, functional::maximum{}, here);
        this->rescale_to(scope, row_max, rescale, here);
    }
};

}  // namespace imbrex
