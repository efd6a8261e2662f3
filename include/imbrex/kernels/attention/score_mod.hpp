// score_mod: functors that change a score (scale * q . k) before the softmax, as in FlexAttention: softcap, ALiBi,
// additive bias. A score_mod is any type with
//
//     IMBREX_KERNEL float operator()(const attention_extents&, int query, int key, float score) const;
//
// compose(softcap{30}, alibi{slopes}, ...) applies several, the first one first. A score_mod that changes nothing
// declares `is_identity` and costs nothing. One that reads memory for each element declares `reads_memory` and gets
// narrower tiles, which leave it registers. Positions behind the sequence lengths are evaluated too, before the mask: a
// score_mod must not read memory there.
//
// A score_mod that begins and ends with a multiplication may fold both factors into existing ones: the first into the
// scale of Q K^T, the last into the scale of the softmax. It is then applied after the mask, so that it overlaps the
// row maximum, and must keep -infinity.
//
//     // The last factor.
//     IMBREX_FN float output_scale() const;
//     // The score divided by output_scale(), from the unscaled product q . k.
//     IMBREX_KERNEL float unscaled(const attention_extents&, int query, int key, float product, float scale) const;
//
// For the backward pass, a score_mod other than the addition of a term provides its derivative:
//
//     // d(score_mod(score)) / d(score)
//     IMBREX_KERNEL float derivative(const attention_extents&, int query, int key, float score) const;
//
// A score_mod with parameters may take part in the backward pass, which then also adds the gradients of these parameters.
// d_score is the gradient of its result: if it is composed with others, the chain rule includes the derivatives of those
// applied after it. The caller clears the gradients.
//
//     // A parameter per score, or fewer that scores share. Called once for each score with a gradient other than 0.
//     IMBREX_KERNEL void add_gradient(const attention_extents&, int query, int key, float d_score) const;
//
//     // A parameter per head: its gradient is the sum of the head's head_gradient(...), added to head_gradients()[head].
//     IMBREX_KERNEL float head_gradient(const attention_extents&, int query, int key, float d_score) const;
//     IMBREX_FN float* head_gradients() const;
//
// If a score_mod with `unscaled` ignores positions and never increases the product, it may give a polynomial of small products (see
// softcap_softmax.hpp):
//
//     IMBREX_FN softcap_polynomial polynomial(float scale) const;
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/register/softmax.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <utility>

namespace imbrex {

template <class Score>
concept attention_score_mod = requires(const Score& score, const attention_extents& extents) {
    { score(extents, 0, 0, 1.0f) } -> std::convertible_to<float>;
};

// Gradients of parameters, see above.
template <class Score>
concept score_adds_gradient = requires(const Score& score, const attention_extents& extents) {
    { score.add_gradient(extents, 0, 0, 1.0f) } -> std::same_as<void>;
};
template <class Score>
concept score_has_head_gradient = requires(const Score& score, const attention_extents& extents) {
    { score.head_gradient(extents, 0, 0, 1.0f) } -> std::convertible_to<float>;
    { score.head_gradients() } -> std::same_as<float*>;
};

namespace score_mod {

template <class First, class Second>
struct composed;

}  // namespace score_mod

// The same of composed score_mods, of any member.
template <class Score>
inline constexpr bool score_adds_gradients = score_adds_gradient<Score>;
template <class First, class Second>
inline constexpr bool score_adds_gradients<score_mod::composed<First, Second>> =
    score_adds_gradients<First> || score_adds_gradients<Second>;
template <class Score>
inline constexpr bool score_has_head_gradients = score_has_head_gradient<Score>;
template <class First, class Second>
inline constexpr bool score_has_head_gradients<score_mod::composed<First, Second>> =
    score_has_head_gradients<First> || score_has_head_gradients<Second>;
template <class Score>
inline constexpr bool score_has_gradients = score_adds_gradients<Score> || score_has_head_gradients<Score>;

// Turns products q . k into base-2 exponents: up to `limit` in magnitude by an odd polynomial; beyond it by the softcap
// and then `value`.
struct softcap_polynomial : softmax_scale_log2 {
    float limit;
    float first;  // coefficients of x, x^3 and x^5
    float third;
    float fifth;

    // The exponent of a product minus `reference`.
    IMBREX_KERNEL float relative_to(float reference, float product) const {
        const float square = product * product;
        return product * (first + square * (third + square * fifth)) - reference;
    }
};

namespace score_mod {

struct identity {
    static constexpr bool is_identity = true;
    IMBREX_KERNEL float operator()(const attention_extents&, int, int, float score) const { return score; }
};

// softcap: cap * tanh(score / cap), except that infinity stays infinite. The hardware's tanh is accurate to 11 bits.
struct softcap {
    float cap;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return cap * unscaled(s, query, key, score, 1.0f);
    }
    IMBREX_FN float output_scale() const { return cap; }
    IMBREX_KERNEL float unscaled(const attention_extents&, int, int, float product, float scale) const {
        // Adding the smallest normal number times the product changes nothing unless the product is infinite.
        return hw::fma(product, std::numeric_limits<float>::min(), hw::tanh(product * (scale * hw::reciprocal(cap))));
    }
    IMBREX_KERNEL float derivative(const attention_extents&, int, int, float score) const {
        const float inside = hw::tanh(score * hw::reciprocal(cap));
        return 1.0f - inside * inside;
    }
    // tanh up to 1/2 in three terms, with an error of at most 5e-6.
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

// ALiBi: a penalty proportional to the distance, with a slope per head.
struct alibi {
    const float* slopes;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        const int distance = query + s.offset() - key;
        return score - slopes[s.head] * static_cast<float>(distance < 0 ? -distance : distance);
    }
};

// ALiBi with the gradient of its slopes, one per head.
struct alibi_with_gradient : alibi {
    float* d_slopes;
    IMBREX_KERNEL float head_gradient(const attention_extents& s, int query, int key, float d_score) const {
        const int distance = query + s.offset() - key;
        return -d_score * static_cast<float>(distance < 0 ? -distance : distance);
    }
    IMBREX_FN float* head_gradients() const { return d_slopes; }
};

// An additive bias [batch, head, query, key]; a stride of 0 broadcasts.
struct additive_bias {
    static constexpr bool reads_memory = true;

    const float* values;
    std::int64_t batch_stride;
    std::int64_t head_stride;
    std::int64_t query_stride;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        // Out-of-range positions read the first element of the row, or the first row: a branch around each load would
        // cost many registers.
        const std::int64_t row =
            s.batch * batch_stride + s.head * head_stride + (query < s.seqlen_q ? query : 0) * query_stride;
        return score + (values + row)[key < s.seqlen_k ? key : 0];
    }
};

// The same with the gradient of the bias, with the strides of the bias. Where scores share an element (a stride of 0),
// the order of its sum varies between runs.
struct additive_bias_with_gradient : additive_bias {
    float* d_values;
    IMBREX_KERNEL void add_gradient(const attention_extents& s, int query, int key, float d_score) const {
        add_element(d_values, s.batch * batch_stride + s.head * head_stride + query * query_stride + key, d_score);
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

// The factor that the softmax multiplies scores with: the scale of Q K^T, the score_mod's output_scale, or 1.
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

// The same for base-2 exponentials: a softmax_scale_log2, or a softcap_polynomial.
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

template <class Score>
constexpr bool score_has_derivative() {
    return requires(const Score& one, const attention_extents& s) {
        one.derivative(s, 0, 0, 1.0f);
    };
}

// Whether the backward pass needs registers for the score_mod.
template <class Score>
constexpr bool score_is_differentiated() {
    return score_has_derivative<Score>() || score_has_gradients<Score>;
}

// 1 where the score_mod adds a term.
template <class Score>
IMBREX_KERNEL float derivative_of_score(const Score& one, const attention_extents& s, int query, int key, float score) {
    if constexpr (score_has_derivative<Score>()) {
        return one.derivative(s, query, key, score);
    } else {
        return 1.0f;
    }
}

namespace score_mod {

template <class First, class Second>
struct composed {
    static constexpr bool is_identity = score_is_identity<First>() && score_is_identity<Second>();
    static constexpr bool reads_memory = score_reads_memory<First>() || score_reads_memory<Second>();
    static_assert(!score_has_head_gradients<First> || !score_has_head_gradients<Second>,
                  "imbrex: at most one of composed score_mods may have head_gradient");

    First first;
    Second second;
    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return second(s, query, key, first(s, query, key, score));
    }
    IMBREX_KERNEL float derivative(const attention_extents& s, int query, int key, float score) const
        requires(score_has_derivative<First>() || score_has_derivative<Second>()) {
        const float slope = derivative_of_score(first, s, query, key, score);
        return slope * derivative_of_score(second, s, query, key, first(s, query, key, score));
    }
    IMBREX_FN float* head_gradients() const
        requires(score_has_head_gradients<First> != score_has_head_gradients<Second>) {
        if constexpr (score_has_head_gradients<First>) {
            return first.head_gradients();
        } else {
            return second.head_gradients();
        }
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

// The chain rule: returns the gradient of the argument `score` from that of the result, `d_score`. Adds the gradients of
// parameters, and to `of_head` that of a head's parameter.
template <class Score>
IMBREX_KERNEL float backpropagate(const Score& one, const attention_extents& s, int query, int key, float score,
                                  float d_score, float& of_head) {
    if constexpr (score_adds_gradient<Score>) {
        if (d_score != 0 && key < s.seqlen_k && query < s.seqlen_q) one.add_gradient(s, query, key, d_score);
    }
    if constexpr (score_has_head_gradient<Score>) of_head += one.head_gradient(s, query, key, d_score);
    return d_score * derivative_of_score(one, s, query, key, score);
}
template <class First, class Second>
IMBREX_KERNEL float backpropagate(const score_mod::composed<First, Second>& both, const attention_extents& s, int query,
                                  int key, float score, float d_score, float& of_head) {
    float between = 0;  // the argument of the second, which only a derivative reads
    if constexpr (score_has_derivative<Second>()) between = both.first(s, query, key, score);
    const float d_between = backpropagate(both.second, s, query, key, between, d_score, of_head);
    return backpropagate(both.first, s, query, key, score, d_between, of_head);
}

// A score_mod whose parameters are constants: they get no gradients.
template <class Score>
struct score_with_constants {
    static constexpr bool is_identity = score_is_identity<Score>();
    static constexpr bool reads_memory = score_reads_memory<Score>();
    const Score& one;

    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        return one(s, query, key, score);
    }
    IMBREX_KERNEL float derivative(const attention_extents& s, int query, int key, float score) const
        requires(score_has_derivative<Score>()) {
        return one.derivative(s, query, key, score);
    }
};

// Whether a score_mod gives the same result at all positions of all sequences.
template <class Score>
inline constexpr bool score_ignores_positions = score_is_identity<Score>();
template <>
inline constexpr bool score_ignores_positions<score_mod::softcap> = true;
template <class First, class Second>
inline constexpr bool score_ignores_positions<score_mod::composed<First, Second>> =
    score_ignores_positions<First>&& score_ignores_positions<Second>;

}  // namespace imbrex
