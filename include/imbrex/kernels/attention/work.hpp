// Work of a block: a range of queries of one head and the keys that any of them sees; and score_mod and mask of a tile
// of scores. Shared by all attention kernels.
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
    key_range keys;  // empty if none is visible

    // The tile scheduler may count more blocks than a sequence has: some have no queries.
    IMBREX_FN bool exists() const { return queries.first < sequence.seqlen_q; }
    IMBREX_FN bool has_keys() const { return keys.end > keys.first; }
    // Whether each of these queries sees all of these keys, and all of them exist.
    template <class Mask>
    IMBREX_FN bool fully_visible(query_range some, key_range tile, const Mask& mask) const {
        const bool unmasked = mask.fully_unmasked(sequence, some, tile);
        return (tile.end <= keys.end) & unmasked;
    }
};

// The queries of a block: up to block_m / warpgroup_rows warpgroups. If seqlen_q is not a multiple of block_m, the
// first blocks have fewer warpgroups. For a causal-like mask the first block alone is smaller, since it has the fewest
// keys. Otherwise several blocks lack one warpgroup each, since two remaining warpgroups gain more from one idle than
// one from two.
//
//     1024 queries, 3 warpgroups of 64     causal-like       64, 192, 192, 192, 192, 192
//                                          otherwise        128, 128, 192, 192, 192, 192
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

// The work of a tile index of the scheduler.
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

// Hidden scores become -infinity. Fully unmasked tiles cost nothing.
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
                // Evaluate both: a branch per element makes the compiler keep many more registers.
                const bool seen = (key < work.keys.end) & mask.keep(work.sequence, first_query + row, key);
                return seen ? x : minus_infinity;
            },
            here);
    }
}

// Applies score_mod and mask to unscaled products q . k. The remaining factor, scale_after, is left to the softmax.
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
