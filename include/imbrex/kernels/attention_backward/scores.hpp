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

// Unscaled products k . q become probabilities: `p` in the type of the inputs, and `scores` in fp32, there multiplied by
// the derivative of the score_mod.
template <class Scope, class In, int Keys, int Queries, int Warps, class Mask, class Score>
IMBREX_KERNEL void probabilities_from(const Scope& scope, hw::fragment<float, Keys, Queries, Warps>& scores,
                                      hw::fragment<In, Keys, Queries, Warps>& p,
                                      const column_values<float, Queries>& lse2, const attention_score_corner& at,
                                      const Mask& mask, const Score& score, float scale,
                                      source here = source::current()) {
    if constexpr (score_has_derivative<Score>()) {
        mask_transposed_scores(scope, scores, at, mask, here);
        fill(scope, p, In(0.0f), here);  // the update below must not find it unwritten
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

// Adds the gradients of the score_mod's parameters, if it has any, from a tile of transposed dS in fp32.
template <class Scope, int Keys, int Queries, int Warps, class Score>
IMBREX_KERNEL void add_score_gradients(const Scope& scope, const hw::fragment<float, Keys, Queries, Warps>& d_s,
                                       const attention_score_corner& at, const Score& score,
                                       source here = source::current()) {
    const attention_extents& s = at.sequence;
    if constexpr (score_adds_gradient<Score>) {
        hw::visit(
            scope, hw::use::read, here,
            [&](int row, int column, const float& x) {
                const int key = at.first_key + row, query = at.first_query + column;
                if (x != 0 && key < s.seqlen_k && query < s.seqlen_q) score.add_gradient(s, query, key, x);
            },
            d_s);
    }
    if constexpr (score_has_head_gradient<Score>) {
        auto parts = d_s;
        map_indexed(
            scope, parts,
            [&](int row, int column, float x) {
                return score.head_gradient(s, at.first_query + column, at.first_key + row, x);
            },
            here);
        row_values_of<hw::fragment<float, Keys, Queries, Warps>> sums;
        reduce_rows(scope, sums, parts, functional::add{}, 0.0f, here);
        // All rows add to one number.
        register_tile<float, Keys, 16, Scope> column;
        fill(scope, column, 0.0f, here);
        combine_with_rows(
            scope, column, sums, [](float, float sum) { return sum; }, here);
        atomic_add(scope, global_tile<float>{score.head_gradients() + s.head, 0, Keys, 1}, column, here);
    }
}

}  // namespace imbrex
