// A work tile as the scheduler warp publishes it to the block: the key tiles that any of its queries sees, the fully
// unmasked ones among them (so that consumers do not evaluate the mask for whole tiles), which warpgroups skip the last
// tile because they see none of it, and which are idle because they have no queries. Tiles are counted from the first
// visible one.
//
//                0 .. unmasked.first .. unmasked.end .. tiles
//     causal     [         unmasked        ][partial]
//     window     [partial][         unmasked        ][partial]
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/work.hpp>

namespace imbrex {

// Half-open: from `first` up to, not including, `end`.
struct tile_range {
    int first;
    int end;

    IMBREX_FN bool has(int tile) const { return (tile >= first) & (tile < end); }
};

struct attention_work_tile : attention_work {
    int first_tile;  // of the sequence
    int tiles;
    tile_range unmasked;
    int first_row;     // the row of the tensors at which its queries begin
    unsigned skipped;  // bit w: warpgroup w skips the last tile; bit idle_shift + w: warpgroup w is idle

    static constexpr int idle_shift = 16;
    IMBREX_FN static bool skips(unsigned warpgroups, int group) { return (warpgroups >> group & 1) != 0; }
    IMBREX_FN static bool is_idle(unsigned warpgroups, int group) { return skips(warpgroups, idle_shift + group); }
    IMBREX_FN bool skipped_by(int group) const { return skips(skipped, group); }

    // has_keys() of a work tile in a pipeline stage; reads only the fields needed.
    template <class Held>
    IMBREX_KERNEL static bool has_keys_in(const Held& held) {
        const key_range keys = held.get(&attention_work_tile::keys);
        return keys.end > keys.first;
    }
};

// The work tile of a tile index of the scheduler.
template <int BlockM, int BlockN, int WarpgroupRows, bool CanSkip, class Lengths, class Mask>
IMBREX_KERNEL attention_work_tile attention_work_tile_at(int number, const attention_tile_scheduler& scheduler,
                                                         const Lengths& lengths, const Mask& mask) {
    const attention_work one = attention_work_at(number, BlockM, WarpgroupRows, scheduler, lengths, mask);
    const auto unmasked = [&](int first, int end) {
        return one.fully_visible(one.queries, {first * BlockN, end * BlockN}, mask);
    };
    const int first_tile = one.keys.first / BlockN;
    const int end_tile = (one.keys.end + BlockN - 1) / BlockN;
    int end_unmasked = end_tile;
    while (end_unmasked > first_tile && !unmasked(end_unmasked - 1, end_unmasked)) --end_unmasked;
    int first_unmasked = unmasked(first_tile, end_unmasked) ? first_tile : end_unmasked;
    while (first_unmasked > first_tile && unmasked(first_unmasked - 1, first_unmasked)) --first_unmasked;
    unsigned skipped = 0;
    if constexpr (WarpgroupRows < BlockM) {
        for (int group = (one.queries.end - one.queries.first + WarpgroupRows - 1) / WarpgroupRows;
             group < BlockM / WarpgroupRows; ++group) {
            skipped |= 1U << (attention_work_tile::idle_shift + group);
        }
    }
    if constexpr (CanSkip) {
        // All warpgroups mask a tile that extends behind the last key into other data.
        const bool ends_early = lengths.keys_end_early() && end_tile * BlockN > one.sequence.seqlen_k;
        const bool may = end_tile - first_tile > 1 && !ends_early;
        for (int first = one.queries.first, bit = 1; first < one.queries.end; first += WarpgroupRows, bit *= 2) {
            const int end = first + WarpgroupRows < one.queries.end ? first + WarpgroupRows : one.queries.end;
            const bool sees = mask.visible_keys(one.sequence, {first, end}).end > (end_tile - 1) * BlockN;
            if (may && !sees) skipped |= bit;
        }
    }
    return {one,
            first_tile,
            end_tile - first_tile,
            {first_unmasked - first_tile, end_unmasked - first_tile},
            lengths.first_query(one.sequence.batch) + one.queries.first,
            skipped};
}

}  // namespace imbrex
