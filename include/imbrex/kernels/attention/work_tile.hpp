// A piece of work as a block is told of it by the warp that plans: the tiles of keys that any of its queries sees, and those
// among them that all see whole, so that nobody else asks the mask about a whole tile. They are counted from the first. And which
// groups of its queries see nothing of the last tile, and may pass it by; and which have no queries in it at all, and rest.
//
//                0 .. whole.first .. whole.end .. tiles
//     causal     [        seen whole        ][cut]
//     window     [cut][        seen whole        ][cut]
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/work.hpp>

namespace imbrex {

// From `first` up to, not including, `end`.
struct tile_range {
    int first;
    int end;

    IMBREX_FN bool has(int tile) const { return (tile >= first) & (tile < end); }
};

struct attention_work_tile : attention_work {
    int first_tile;  // of the sequence's
    int tiles;
    tile_range unmasked;
    int first_row;     // of the tensors, where its queries are
    unsigned skipped;  // the last tile, by which groups: a bit each; all tiles, by which: a bit each from `resting` on

    static constexpr int idle_shift = 16;
    IMBREX_FN static bool skips(unsigned warpgroups, int group) { return (warpgroups >> group & 1) != 0; }
    IMBREX_FN static bool is_idle(unsigned warpgroups, int group) { return skips(warpgroups, idle_shift + group); }
    IMBREX_FN bool skipped_by(int group) const { return skips(skipped, group); }

    // has_keys of one that is held in a ring, of which only what is asked for is read.
    template <class Held>
    IMBREX_KERNEL static bool has_keys_in(const Held& held) {
        const key_range keys = held.get(&attention_work_tile::keys);
        return keys.end > keys.first;
    }
};

// Piece `number` of the order, in blocks of so many queries (rows) and tiles of so many keys (columns).
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
        // A tile behind whose last key there is something else is looked at by all.
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
