// What becomes of a score (query times key, scaled) before the softmax. A score is any type with
//
//     IMBREX_KERNEL float operator()(const attention_extents&, int query, int key, float score) const;
//
// and is joined with others by compose(softcap{30}, alibi{slopes}, ...), the first being applied first. One that changes nothing
// says so, and costs nothing; one that reads memory for each pair of query and key says so, and gets narrower tiles, which leave
// it registers. Places that do not exist are scored too, before they are masked: behind the lengths a score must not read.
//
// A score that begins and ends with a factor may leave both to those who multiply anyway: the one before it comes with the scale,
// the one behind it the softmax takes up. It is asked only after products have been masked, so that it runs beside the search for
// the largest of them, and must leave those that are -infinity as they are.
//
//     IMBREX_FN float output_scale() const;                                                                     the one behind it
//     IMBREX_KERNEL float unscaled(const attention_extents&, int query, int key, float product, float scale) const;
//
// If it is the same wherever query and key stand and never more than the product, it may also say how small products become
// exponents without it:
//
//     IMBREX_FN softcap_polynomial polynomial(float scale) const;
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/ops/register/softcap_softmax.hpp>

#include <cstdint>
#include <limits>
#include <utility>

namespace imbrex {

namespace score_mod {

struct identity {
    static constexpr bool is_identity = true;
    IMBREX_KERNEL float operator()(const attention_extents&, int, int, float score) const { return score; }
};

// Bent smoothly so as to stay between -cap and cap, unless it is infinite. The hardware's tanh is good to 11 bits.
struct softcap {
    float cap;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return cap * unscaled(s, query, key, score, 1.0f);
    }
    IMBREX_FN float output_scale() const { return cap; }
    IMBREX_KERNEL float unscaled(const attention_extents&, int, int, float product, float scale) const {
        // The least of numbers times a product is nothing, but for one that is infinite.
        return hw::fma(product, std::numeric_limits<float>::min(), hw::tanh(product * (scale * hw::reciprocal(cap))));
    }
    // tanh up to 1/2 in three terms, 5e-6 from it at most.
    IMBREX_FN softcap_polynomial polynomial(float scale) const {
        const float inside = scale / cap;
        const float factor = scale * log2_of_e;
        return {{cap * log2_of_e},
                0.5f / inside,
                0.99992483f * factor,
                -0.33085505f * factor * inside * inside,
                0.11254138f * factor * inside * inside * inside * inside};
    }
};

// A penalty for distance, with a slope for each head.
struct alibi {
    const float* slopes;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        const int distance = query + s.offset() - key;
        return score - slopes[s.head] * static_cast<float>(distance < 0 ? -distance : distance);
    }
};

// A number added to each score, from an array; a stride of 0 repeats it.
struct additive_bias {
    static constexpr bool reads_memory = true;

    const float* values;
    std::int64_t batch_stride;
    std::int64_t head_stride;
    std::int64_t query_stride;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        // Behind the ends the first of a row, or the first row: a way around each element's read would cost many registers.
        const std::int64_t row =
            s.batch * batch_stride + s.head * head_stride + (query < s.seqlen_q ? query : 0) * query_stride;
        return score + (values + row)[key < s.seqlen_k ? key : 0];
    }
};

}  // namespace score_mod

template <class Score>
constexpr bool score_is_identity() {
    if constexpr (requires { Score::is_identity; }) {
        return Score::is_identity;
    } else {
        return false;
    }
}

template <class Score>
constexpr bool score_reads_memory() {
    if constexpr (requires { Score::reads_memory; }) {
        return Score::reads_memory;
    } else {
        return false;
    }
}

template <class Score>
constexpr bool score_has_output_scale() {
    return requires(const Score& one) {
        one.output_scale();
    };
}

// What the softmax multiplies scores with: they are products, in units of their own, or as they are.
template <class Score>
IMBREX_FN float scale_after(const Score& score, float scale) {
    if constexpr (score_is_identity<Score>()) {
        return scale;
    } else if constexpr (score_has_output_scale<Score>()) {
        return score.output_scale();
    } else {
        return 1.0f;
    }
}

template <class Score>
constexpr bool score_has_polynomial() {
    return requires(const Score& one) {
        one.polynomial(1.0f);
    };
}

// The same, times what makes exponents of 2 of them: an softmax_scale_log2, or an softcap_polynomial.
template <class Score>
IMBREX_FN auto scale_log2_after(const Score& score, float scale) {
    if constexpr (score_has_polynomial<Score>()) {
        return score.polynomial(scale);
    } else {
        return softmax_scale_log2{scale_after(score, scale) * log2_of_e};
    }
}
template <class Score>
using scale_log2_after_score = decltype(scale_log2_after(std::declval<const Score&>(), 1.0f));

namespace score_mod {

template <class First, class Second>
struct composed {
    static constexpr bool is_identity = score_is_identity<First>() && score_is_identity<Second>();
    static constexpr bool reads_memory = score_reads_memory<First>() || score_reads_memory<Second>();

    First first;
    Second second;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return second(s, query, key, first(s, query, key, score));
    }
};

template <class Score>
constexpr Score compose(const Score& one) {
    return one;
}
template <class First, class... Others>
constexpr auto compose(const First& first, const Others&... others) {
    return composed<First, decltype(compose(others...))>{first, compose(others...)};
}

}  // namespace score_mod

// Whether a score is the same wherever query and key stand, in whichever sequence.
template <class Score>
inline constexpr bool score_ignores_positions = score_is_identity<Score>();
template <>
inline constexpr bool score_ignores_positions<score_mod::softcap> = true;
template <class First, class Second>
inline constexpr bool score_ignores_positions<score_mod::composed<First, Second>> =
    score_ignores_positions<First>&& score_ignores_positions<Second>;

}  // namespace imbrex
