// GQA packing (PackGQA in FlashAttention): the query heads that share a KV head, of all new tokens of a sequence, are
// packed into the rows of one tile. A key is read once for all of them. MQA and speculative decoding (several query
// tokens per sequence) are the same with more heads or tokens.
//
//     row        0        1        2        3        4        5     ..
//     token      0        0        0        1        1        1
//     q head     first    +1       +2       first    +1       +2          q_heads_per_kv_head = 3
//
// Mask and score_mod see the query head and token of each row.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/mask.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <utility>

namespace imbrex {

struct gqa_rows {
    attention_extents sequence;  // its head is the first query head of the KV head
    fast_divmod heads;           // q_heads_per_kv_head
    int first;                   // first packed row of this tile

    IMBREX_FN int query(int row) const { return heads.quotient(first + row); }
    IMBREX_FN int head(int row) const { return sequence.head + first + row - query(row) * heads.value; }
    IMBREX_FN bool exists(int row) const { return first + row < sequence.seqlen_q * heads.value; }
    IMBREX_FN attention_extents of(int row) const {
        return {sequence.batch, head(row), sequence.seqlen_q, sequence.seqlen_k};
    }
};

// Whether a mask is the same for all heads. It is then evaluated once instead of per head.
template <class Mask>
inline constexpr bool mask_ignores_heads = false;
template <>
inline constexpr bool mask_ignores_heads<full_mask> = true;
template <>
inline constexpr bool mask_ignores_heads<causal_mask> = true;
template <>
inline constexpr bool mask_ignores_heads<window_mask> = true;
template <>
inline constexpr bool mask_ignores_heads<chunked_mask> = true;
template <>
inline constexpr bool mask_ignores_heads<length_mask> = true;
template <class First, class Second>
inline constexpr bool mask_ignores_heads<and_mask<First, Second>> =
    mask_ignores_heads<First>&& mask_ignores_heads<Second>;

// Union of the visible key ranges of `heads` query heads, from sequence.head on, clamped to the sequence.
template <class Mask>
IMBREX_KERNEL key_range visible_keys_of_heads(const attention_extents& sequence, int heads, query_range queries,
                                              const Mask& mask) {
    key_range all = mask.visible_keys(sequence, queries);
    if constexpr (!mask_ignores_heads<Mask>) {
        attention_extents one = sequence;
        for (int i = 1; i < heads; ++i) {
            ++one.head;
            const key_range more = mask.visible_keys(one, queries);
            all = {more.first < all.first ? more.first : all.first, more.end > all.end ? more.end : all.end};
        }
    }
    const int first = all.first > 0 ? all.first : 0;
    const int end = all.end < sequence.seqlen_k ? all.end : sequence.seqlen_k;
    return {first, end > first ? end : first};
}

// Whether every row sees all of these keys.
template <int Rows, class Mask>
IMBREX_KERNEL bool rows_fully_unmasked(const gqa_rows& rows, key_range keys, const Mask& mask) {
    const int end = rows.query(Rows - 1) + 1;
    const query_range queries{rows.query(0), end < rows.sequence.seqlen_q ? end : rows.sequence.seqlen_q};
    bool unmasked = mask.fully_unmasked(rows.sequence, queries, keys);
    if constexpr (!mask_ignores_heads<Mask>) {
        attention_extents one = rows.sequence;
        for (int i = 1; i < rows.heads.value; ++i) {
            ++one.head;
            unmasked &= mask.fully_unmasked(one, queries, keys);
        }
    }
    return unmasked;
}

// Layout of a score tile: S = Q K^T, or S^T = K Q^T for swap-AB.
enum class score_tile_layout { queries_by_keys, keys_by_queries };

// Sets scores outside each query row's visible range to -infinity. seen(row) is relative to the tile's first key.
template <score_tile_layout Layout, class Scope, int Rows, int Columns, int Warps, class Seen>
IMBREX_KERNEL void mask_unseen(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& scores, const Seen& seen,
                               source here) {
    if constexpr (Layout == score_tile_layout::queries_by_keys) {
        mask_outside(scope, scores, seen, minus_infinity, here);
    } else {
        column_values<int, Columns> first, end;
        hw::visit_columns(
            scope, hw::use::write, here, [&](int column, int& from) { from = seen(column).first; }, first);
        hw::visit_columns(
            scope, hw::use::write, here, [&](int column, int& to) { to = seen(column).end; }, end);
        hw::visit(
            scope, hw::use::update, here,
            [](int key, int, float& x, const int& from, const int& to) {
                x = ((key >= from) & (key < to)) ? x : minus_infinity;
            },
            scores, std::as_const(first), std::as_const(end));
    }
}

// Applies score_mod and mask where they have an effect: masked scores, and scores past the last key, become -infinity.
// The softmax applies the remaining scale, scale_after.
template <score_tile_layout Layout = score_tile_layout::queries_by_keys, class Scope, int Rows, int Columns, int Warps,
          class Mask, class Score>
IMBREX_KERNEL void apply_score_mod_and_mask_gqa(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& scores,
                                                const gqa_rows& rows, int first_key, int end_key, const Mask& mask,
                                                const Score& score, float scale, source here = source::current()) {
    constexpr bool down = Layout == score_tile_layout::queries_by_keys;
    constexpr int keys = down ? Columns : Rows, queries = down ? Rows : Columns;
    // f(query row, key, score)
    const auto map_each = [&](const auto& f) {
        map_indexed(
            scope, scores,
            [&](int row, int column, float x) { return f(down ? row : column, first_key + (down ? column : row), x); },
            here);
    };
    const auto hide = [&] {
        const key_range tile{first_key, first_key + keys};
        if (tile.end <= end_key && rows_fully_unmasked<queries>(rows, tile, mask)) return;
        if constexpr (mask_has_ranges<Mask>()) {
            const auto seen = [&](int row) {
                const key_range all = mask.visible_keys_of_query(rows.of(row), rows.query(row));
                return key_range{all.first - first_key, (all.end < end_key ? all.end : end_key) - first_key};
            };
            mask_unseen<Layout>(scope, scores, seen, here);
        } else {
            map_each([&](int row, int key, float x) {
                const bool kept = mask.keep(rows.of(row), rows.query(row), key);
                return ((key < end_key) & kept) ? x : minus_infinity;
            });
        }
    };
    if constexpr (score_has_output_scale<Score>()) {
        hide();
        map_each(
            [&](int row, int key, float x) { return score.unscaled(rows.of(row), rows.query(row), key, x, scale); });
    } else {
        if constexpr (!score_is_identity<Score>()) {
            map_each([&](int row, int key, float x) { return score(rows.of(row), rows.query(row), key, x * scale); });
        }
        hide();
    }
}

}  // namespace imbrex
