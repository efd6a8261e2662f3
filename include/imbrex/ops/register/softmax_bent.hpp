// Online softmax of scores that are bent to stay within bounds (a softcap): exponents by a polynomial where that is close enough,
// which costs less than what bends them, a second instruction of the unit that makes the exponentials.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax.hpp>

namespace imbrex {

// How products become exponents of 2: those up to a limit, on both sides of zero, by a polynomial; those beyond are bent, and then
// multiplied with the factor.
struct exponent_curve : exponent_factor {
    float limit;
    float first;  // what a product is multiplied with, with its cube, with its fifth power
    float third;
    float fifth;

    // A product's exponent, less something.
    IMBREX_KERNEL float relative_to(float reference, float product) const {
        const float square = product * product;
        return product * (first + square * (third + square * fifth)) - reference;
    }
};

// An online softmax whose scores come as products that are yet to be bent. The factor is that of scores.
template <int Rows, class Scope, int Slack>
class bent_softmax : public online_softmax<Rows, Scope, Slack> {
    static_assert(Slack > 0, "imbrex: bent products are weighed with a slack");
    using base = online_softmax<Rows, Scope, Slack>;
    using base::factor_;
    using base::largest_;

  public:
    using base::warps;
    // Below all bent scores, and below what they are relative to at least. Their squares are finite.
    static constexpr float below_bent = -1e10f;
    static constexpr float far_below = -1e15f;

    using base::base;

    // Products become weights, as scores do. Where all of a warp's are within the curve's limit, and none exceeds what its row is
    // relative to by more than the slack, the curve makes exponents of them. Otherwise `bend` makes scores of them, and they are
    // relative to the largest.
    template <softmax_pause Pause = softmax_pause::never, int Columns, class Bend, class Rescale>
    IMBREX_KERNEL void weigh_bent(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& products,
                                  const exponent_curve& curve, Bend bend, Rescale rescale,
                                  source here = source::current()) {
        hw::row_fragment<float, Rows, warps> farthest;
        fill(scope, farthest, 0.0f, here);
        fold_rows(
            scope, farthest, products, [](float most, float x) { return hw::max(most, hw::abs(x)); }, here);
        combine(
            scope, farthest, largest_,
            [&](float most, float before) {
                const bool near =
                    (most <= curve.limit) & (most * curve.first - before * factor_ <= static_cast<float>(Slack));
                return near ? 0.0f : 1.0f;
            },
            here);
        exponent_curve used = curve;
        hw::if_any_row(
            scope, farthest, [](float one) { return one != 0; },
            [&] {
                map(scope, products, bend, here);
                take_largest(scope, products, rescale, here);
                straighten(scope, products, used, here);
            },
            here);
        weigh_on<Pause>(scope, products, used, here);
    }

  private:
    // From here on scores go the same way as products: by a curve that is straight. What is infinite must not be squared.
    template <int Columns>
    IMBREX_KERNEL void straighten(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& scores,
                                  exponent_curve& used, source here) const {
        map(
            scope, scores, [](float x) { return x == minus_infinity ? far_below : x; }, here);
        used.first = factor_;
        used.third = used.fifth = 0.0f;
    }

    template <softmax_pause Pause, int Columns>
    IMBREX_KERNEL void weigh_on(const Scope& scope, hw::fragment<float, Rows, Columns, warps>& products,
                                const exponent_curve& curve, source here) {
        hw::row_fragment<float, Rows, warps> shift = largest_;
        map(
            scope, shift, [&](float x) { return hw::max(x, below_bent) * factor_; }, here);
        combine_with_rows(
            scope, products, shift, [&](float x, float by) { return hw::exp2(curve.relative_to(by, x)); }, here);
        this->template sum_up<Pause>(scope, products, here);
    }

    // Takes note of the largest scores, without any slack.
    template <int Columns, class Rescale>
    IMBREX_KERNEL void take_largest(const Scope& scope, const hw::fragment<float, Rows, Columns, warps>& scores,
                                    Rescale rescale, source here) {
        hw::row_fragment<float, Rows, warps> most = largest_;
        fold_rows(scope, most, scores, maximum{}, here);
        finish_rows(scope, most, maximum{}, here);
        this->become_relative_to(scope, most, rescale, here);
    }
};

}  // namespace imbrex
