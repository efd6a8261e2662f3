// What an attention leaves behind, and how the results of different keys are put together.
//
//   normalised   O in the type of the inputs, and the base-2 logarithm of each row's sum of exponentials
//   merged       O in fp32 and those logarithms, put together with what is there already: after the last part of the keys it is
//                as if all had been attended to at once. A logarithm of -infinity means that nothing is there yet
//   partial      O in fp32 before the division, each row's largest score (as a power of 2) and sum relative to it: for whoever
//                puts parts together himself
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/fragment.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/ops/register/softmax.hpp>

namespace imbrex {

enum class attention_output_mode { normalised, merged, partial };

// Those that a result does not have are left empty.
struct attention_aux_outputs {
    attention_row_view lse2;        // normalised (may be left out), merged
    attention_view<float> o_accum;  // merged, partial
    attention_row_view row_max;     // partial
    attention_row_view row_sum;     // partial
};

// The weights of two results in their sum, row by row, and the logarithm of that. What is NaN stays so.
template <class Rows>
struct lse_merge_weights {
    Rows first;
    Rows second;
    Rows lse2;
};

template <class Scope, class Rows>
IMBREX_KERNEL lse_merge_weights<Rows> merge_lse_rows(const Scope& scope, const Rows& first, const Rows& second,
                                                     source here = source::current()) {
    lse_merge_weights<Rows> made{first, second, first};
    hw::visit_rows(
        scope, hw::use::update, here,
        [](int, float& total, float& a, float& b) {
            const float top = hw::max(a, b);
            const float shift = top == minus_infinity ? 0.0f : top;
            const float sum = hw::exp2(a - shift) + hw::exp2(b - shift);
            total = sum == 0 ? minus_infinity : shift + hw::log2(sum);
            const float inverse = sum == 0 ? 0.0f : hw::reciprocal(sum);
            a = hw::exp2(a - shift) * inverse;
            b = hw::exp2(b - shift) * inverse;
        },
        made.lse2, made.first, made.second);
    return made;
}

// What weights are relative to when they are rounded to the type of the inputs.
//
//   exact        each row's largest score so far, as everywhere: its own weight, 1, is not rounded at all
//   relaxed      one of the largest: it stays as long as no weight reaches 2^8. 0 to 3% faster (depth 96 4 to 7%; a softcap 12 to 18%
//                if most scores are within half of it, and as much slower if many are not), and rounding errors are 3% larger. Nothing
//                else is lost. Partial results, which tell their largest scores, are exact in any case.
enum class attention_rescaling { exact, lazy };

// As online_softmax has it.
template <attention_output_mode Mode>
constexpr int rescale_threshold_of(attention_rescaling softmax) {
    return softmax == attention_rescaling::lazy && Mode != attention_output_mode::partial ? 8 : 0;
}

}  // namespace imbrex
