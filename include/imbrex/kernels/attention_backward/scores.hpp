// Probabilities of the backward pass from transposed scores: rows are keys, columns are queries. The LSE of the forward
// pass normalises them, so there is no maximum and no sum.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/reduce.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// The corner of a tile of transposed scores.
struct attention_score_corner {
    attention_extents sequence;
    int first_key;
    int first_query;
};

// Hidden scores become -infinity. Fully unmasked tiles cost nothing.
template <class Scope, int Keys, int Queries, int Warps, class Mask>
IMBREX_KERNEL void mask_transposed_scores(const Scope& scope, hw::fragment<float, Keys, Queries, Warps>& scores,
                                          const attention_score_corner& at, const Mask& mask,
                                          source here = source::current()) {
    const key_range keys{at.first_key, at.first_key + Keys};
    const bool unmasked = mask.fully_unmasked(at.sequence, {at.first_query, at.first_query + Queries}, keys);
    if ((keys.end <= at.sequence.seqlen_k) & unmasked) return;
    map_indexed(
        scope, scores,
        [&](int row, int column, float x) {
            const int key = at.first_key + row;
            const bool seen = (key < at.sequence.seqlen_k) & mask.keep(at.sequence, at.first_query + column, key);
            return seen ? x : minus_infinity;
        },
        here);
}

// Whether the gradients of a score_mod's parameters need the products, since derivatives depend on them. Probabilities and
// dS are then computed together.
template <class Score>
constexpr bool score_keeps_products() {
    return score_has_derivative<Score>() && score_has_gradients<Score>;
}

// Unscaled products k . q become probabilities: `p` in the type of the inputs, and `scores` in fp32, there multiplied by
// the derivative of the score_mod. With score_keeps_products() they are only masked, and d_scores_from computes `p`.
template <class Scope, class In, int Keys, int Queries, int Warps, class Mask, class Score>
IMBREX_KERNEL void probabilities_from(const Scope& scope, hw::fragment<float, Keys, Queries, Warps>& scores,
                                      hw::fragment<In, Keys, Queries, Warps>& p,
                                      const column_values<float, Queries>& lse2, const attention_score_corner& at,
                                      const Mask& mask, const Score& score, float scale,
                                      source here = source::current()) {
    if constexpr (score_has_derivative<Score>()) {
        mask_transposed_scores(scope, scores, at, mask, here);
        fill(scope, p, In(0.0f), here);  // an update must not find it unwritten
        if constexpr (score_keeps_products<Score>()) return;
        hw::visit(
            scope, hw::use::update, here,
            [&](int row, int column, float& x, In& rounded, const float& total) {
                const int key = at.first_key + row, query = at.first_query + column;
                const float scaled = x * scale;
                const float probability = hw::exp2(score(at.sequence, query, key, scaled) * log2_of_e - total);
                const float slope = score.derivative(at.sequence, query, key, scaled);
                rounded = In(probability);
                x = probability == 0 ? 0.0f : probability * slope;
            },
            scores, p, lse2);
        return;
    }
    float scale_log2 = scale * log2_of_e;
    if constexpr (!score_is_identity<Score>()) {
        map_indexed(
            scope, scores,
            [&](int row, int column, float x) {
                return score(at.sequence, at.first_query + column, at.first_key + row, x * scale);
            },
            here);
        scale_log2 = log2_of_e;
    }
    mask_transposed_scores(scope, scores, at, mask, here);
    combine_with_columns(
        scope, scores, lse2, [&](float x, float total) { return hw::exp2(x * scale_log2 - total); }, here);
    convert(scope, p, scores, here);
}

// Adds the sum over all rows to the gradient of the head's parameter.
template <class Scope, int Keys, int Warps, class Score>
IMBREX_KERNEL void add_head_gradient(const Scope& scope, const hw::row_fragment<float, Keys, Warps>& sums,
                                     const attention_score_corner& at, const Score& score, source here) {
    register_tile<float, Keys, 16, Scope> column;
    fill(scope, column, 0.0f, here);
    combine_with_rows(
        scope, column, sums, [](float, float sum) { return sum; }, here);
    atomic_add(scope, global_tile<float>{score.head_gradients() + at.sequence.head, 0, Keys, 1}, column, here);
}

// dP becomes dS, the gradient of the products times the scale, from the results of probabilities_from. Also adds the
// gradients of the score_mod's parameters, if it has any. `of_queries` holds delta; load_lse2(of_queries) loads the LSE
// again.
template <class Scope, class In, int Keys, int Queries, int Warps, class Score, class LoadLse2>
IMBREX_KERNEL void d_scores_from(const Scope& scope, hw::fragment<float, Keys, Queries, Warps>& d_p,
                                 const hw::fragment<float, Keys, Queries, Warps>& scores,
                                 hw::fragment<In, Keys, Queries, Warps>& p, column_values<float, Queries>& of_queries,
                                 const LoadLse2& load_lse2, const attention_score_corner& at, const Score& score,
                                 float scale, source here = source::current()) {
    const attention_extents& s = at.sequence;
    row_values_of<hw::fragment<float, Keys, Queries, Warps>> of_head;  // each row's part of the gradient
    fill(scope, of_head, 0.0f, here);
    if constexpr (score_keeps_products<Score>()) {
        combine_with_columns(
            scope, d_p, of_queries, [](float d_p, float delta) { return d_p - delta; }, here);
        load_lse2(of_queries);
        hw::visit(
            scope, hw::use::update, here,
            [&](int row, int column, float& d, const float& x, In& rounded, const float& total, float& sum) {
                const int key = at.first_key + row, query = at.first_query + column;
                const float probability = hw::exp2(score(s, query, key, x * scale) * log2_of_e - total);
                rounded = In(probability);
                const float d_score = probability * d;
                d = probability == 0 ? 0.0f : backpropagate(score, s, query, key, x * scale, d_score, sum);
            },
            d_p, scores, p, of_queries, of_head);
    } else {
        combine_with_columns(
            scope, d_p, scores, of_queries, [](float d_p, float p, float delta) { return p * (d_p - delta); }, here);
        if constexpr (score_has_gradients<Score>) {
            hw::visit(
                scope, hw::use::read, here,
                [&](int row, int column, const float& d, float& sum) {
                    backpropagate(score, s, at.first_query + column, at.first_key + row, 0.0f, d, sum);
                },
                d_p, of_head);
        }
    }
    if constexpr (score_has_head_gradients<Score>) {
        finish_rows(scope, of_head, functional::add{}, here);
        add_head_gradient(scope, of_head, at, score, here);
    }
}

}  // namespace imbrex
