// What a block does at a time: some queries of one head, and the keys that any of them sees; and what becomes of a tile of
// their scores before the softmax. Whatever a kernel multiplies with, these are the same.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/mask.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

struct attention_work {
    attention_extents sequence;
    query_range queries;
    key_range keys;  // none if it ends where it begins

    // Blocks are counted so that there are enough: some have no queries.
    IMBREX_FN bool exists() const { return queries.first < sequence.seqlen_q; }
    IMBREX_FN bool has_keys() const { return keys.end > keys.first; }
    // Whether each of these queries sees all of these keys, and there are so many.
    template <class Mask>
    IMBREX_FN bool fully_visible(query_range some, key_range tile, const Mask& mask) const {
        const bool unmasked = mask.fully_unmasked(sequence, some, tile);
        return (tile.end <= keys.end) & unmasked;
    }
};

// Queries of a sequence's block: groups of so many, as many as make `rows`. Where they do not come out even, the first blocks lack
// groups. If later queries see more keys the very first lacks them all, since it has the fewest keys to go through; otherwise the
// first ones lack one each, since one group at rest leaves more to two others than two leave to one.
//
//     1024 queries, 3 groups of 64     later ones see more     64, 192, 192, 192, 192, 192
//                                      all see the same       128, 128, 192, 192, 192, 192
template <class Mask>
IMBREX_FN constexpr query_range attention_query_range(int block, int block_m, int warpgroup_rows, int seqlen_q) {
    if (warpgroup_rows == block_m)
        return {block * block_m, block * block_m + block_m < seqlen_q ? block * block_m + block_m : seqlen_q};
    const int blocks = (seqlen_q + block_m - 1) / block_m;
    const int lacking = (blocks * block_m - seqlen_q) / warpgroup_rows * warpgroup_rows;
    const int of_each = causal_like<Mask>() ? lacking : warpgroup_rows;
    const int before = block * of_each < lacking ? block * of_each : lacking;
    const int up_to = before + of_each < lacking ? before + of_each : lacking;
    const int first = block * block_m - before, end = first + before + block_m - up_to;
    return {first, end < seqlen_q ? end : seqlen_q};
}

// Piece `number` of the order, in which a block has `rows` queries, so many of them in a group.
template <class Lengths, class Mask>
IMBREX_KERNEL attention_work attention_work_at(int number, int block_m, int warpgroup_rows,
                                               const attention_tile_scheduler& scheduler, const Lengths& lengths,
                                               const Mask& mask) {
    const attention_tile_scheduler::tile_coord coord = scheduler.at(number, lengths, block_m);
    const attention_extents sequence = lengths.of(coord.batch, coord.head);
    const query_range queries = attention_query_range<Mask>(coord.block, block_m, warpgroup_rows, sequence.seqlen_q);
    const key_range seen = mask.visible_keys(sequence, queries);
    const int begin = seen.first > 0 ? seen.first : 0;
    const int end = seen.end < sequence.seqlen_k ? seen.end : sequence.seqlen_k;
    return {sequence, queries, {begin, end > begin ? end : begin}};
}

// Products of query and key that are not seen become -infinity. Tiles that are seen whole cost nothing.
template <class Scope, int Rows, int Columns, int Warps, class Mask>
IMBREX_KERNEL void mask_scores(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& scores,
                               const attention_work& work, int first_query, int first_key, const Mask& mask,
                               source here = source::current()) {
    const key_range keys{first_key, first_key + Columns};
    if (work.fully_visible({first_query, first_query + Rows}, keys, mask)) return;
    if constexpr (mask_has_ranges<Mask>()) {
        const auto seen = [&](int row) {
            const key_range all = mask.visible_keys_of_query(work.sequence, first_query + row);
            return key_range{all.first - first_key, (all.end < work.keys.end ? all.end : work.keys.end) - first_key};
        };
        mask_outside(scope, scores, seen, minus_infinity, here);
    } else {
        map_indexed(
            scope, scores,
            [&](int row, int column, float x) {
                const int key = first_key + column;
                // Both in any case: with a way around the second for each element, a compiler keeps many more registers.
                const bool seen = (key < work.keys.end) & mask.keep(work.sequence, first_query + row, key);
                return seen ? x : minus_infinity;
            },
            here);
    }
}

// Score and mask, where they change anything, of products of query and key. What is left to be multiplied with, scale_after, is
// the softmax's.
template <class Scope, int Rows, int Columns, int Warps, class Mask, class Score>
IMBREX_KERNEL void apply_score_mod_and_mask(const Scope& scope, hw::fragment<float, Rows, Columns, Warps>& scores,
                                            const attention_work& work, int first_query, int first_key,
                                            const Mask& mask, const Score& score, float scale,
                                            source here = source::current()) {
    if constexpr (score_has_output_scale<Score>()) {
        mask_scores(scope, scores, work, first_query, first_key, mask, here);
        map_indexed(
            scope, scores,
            [&](int row, int column, float x) {
                return score.unscaled(work.sequence, first_query + row, first_key + column, x, scale);
            },
            here);
    } else {
        if constexpr (!score_is_identity<Score>()) {
            map_indexed(
                scope, scores,
                [&](int row, int column, float x) {
                    return score(work.sequence, first_query + row, first_key + column, x * scale);
                },
                here);
        }
        mask_scores(scope, scores, work, first_query, first_key, mask, here);
    }
}

}  // namespace imbrex
