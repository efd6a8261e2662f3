// Output modes of attention, and the LSE merge of results over different keys.
//
//   normalised   final: O in the type of the inputs, and optionally the base-2 LSE of each row
//   merged       LSE merge into an existing result: O in fp32 and its LSE are combined with what is there. After the
//                last part of the keys the result is that over all keys. An LSE of -infinity marks an empty result
//   partial      split-KV partial: O in fp32 before normalisation, each row's maximum score (base 2) and the sum of
//                exponentials relative to it, to be merged later (merge_lse.hpp)
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/ops/register/softmax.hpp>

namespace imbrex {

enum class attention_output_mode { normalised, merged, partial };

// Outputs that a mode does not use stay empty.
struct attention_aux_outputs {
    attention_row_view lse2;        // normalised (optional), merged
    attention_view<float> o_accum;  // merged, partial
    attention_row_view row_max;     // partial
    attention_row_view row_sum;     // partial
};

// The weights of two results in their LSE merge, row by row, and the merged LSE. NaN propagates.
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

// When to rescale the output accumulator of the online softmax.
//
//   exact        whenever the row maximum grows: probabilities are relative to the row maximum so far
//   lazy         lazy rescaling (as in FlashAttention-4): only when the row maximum has grown so much that a
//                probability would exceed 2^8. 0 to 3% faster (head_dim 96: 4 to 7%; softcap: 12 to 18% if most scores
//                are within half of the cap, and as much slower if many are not). Rounding errors are 3% larger. The
//                partial mode outputs the row maximum and is always exact
enum class attention_rescaling { exact, lazy };

// The threshold as a power of 2 for online_softmax; 0 is exact.
template <attention_output_mode Mode>
constexpr int rescale_threshold_of(attention_rescaling softmax) {
    return softmax == attention_rescaling::lazy && Mode != attention_output_mode::partial ? 8 : 0;
}

}  // namespace imbrex
