// Scales of an 8-bit KV cache in attention. A scale that is the same for all pages is exact: that of K is part of the
// softmax scale, and that of V multiplies the output. Scales per page are applied when the elements are upconverted, and
// values are rounded to 16 bits once.
//
// The functions below take the arguments of any attention kernel. Without k_scales and v_scales there is nothing to
// apply.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fp16.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/ops/register/map.hpp>

#include <type_traits>

namespace imbrex {

// The type of V in shared memory, and of the probabilities. fp16 holds every e4m3 and int8, takes the fewest
// instructions to upconvert to, and has more mantissa bits than bf16; probabilities are at most 2^8.
template <class In, class Cache>
using attention_value = std::conditional_t<std::is_same_v<In, Cache>, In, fp16>;

struct cache_scale_arguments {
    kv_cache_scales k_scales;
    kv_cache_scales v_scales;
};

// The type of the probabilities of a kernel: that of V if it differs from that of Q.
template <class Kernel>
struct attention_probability_of {
    using type = typename Kernel::element;
};
template <class Kernel>
requires requires {
    typename Kernel::value_element;
}
struct attention_probability_of<Kernel> {
    using type = typename Kernel::value_element;
};
template <class Kernel>
using attention_probability = typename attention_probability_of<Kernel>::type;

template <class Arguments>
concept has_cache_scales = requires(const Arguments& args) {
    args.k_scales;
    args.v_scales;
};

// The scale of Q K^T for a query head. The scale of an all-zero head may be 0, and 0 * infinity would be NaN.
template <class Arguments>
IMBREX_KERNEL float score_scale_of(const Arguments& args, int head) {
    if constexpr (has_cache_scales<Arguments>) {
        return args.scale * hw::max(args.k_scales.of_head(head / args.q_heads_per_kv_head), 1e-30f);
    } else {
        return args.scale;
    }
}

// The same for base-2 exponents. head() returns the query head.
template <class Arguments, class Head>
IMBREX_KERNEL auto scale_log2_of(const Arguments& args, const Head& head) {
    if constexpr (has_cache_scales<Arguments>) {
        return scale_log2_after(args.score, score_scale_of(args, head()));
    } else {
        return args.scale_log2;
    }
}

// Multiplies the output of a query head by the scale of V.
template <class Scope, class Arguments, class Accumulator>
IMBREX_KERNEL void apply_value_scale(const Scope& scope, const Arguments& args, Accumulator& out, int head,
                                     source here = source::current()) {
    if constexpr (has_cache_scales<Arguments>) {
        const float factor = args.v_scales.of_head(head / args.q_heads_per_kv_head);
        map(
            scope, out, [=](float x) { return x * factor; }, here);
    }
}

}  // namespace imbrex
