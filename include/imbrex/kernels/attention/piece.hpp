// A piece of work as a block is told of it by the warp that plans: the tiles of keys that any of its queries sees, and those
// among them that all see whole, so that nobody else asks the mask about a whole tile. They are counted from the first. And which
// groups of its queries see nothing of the last tile, and may pass it by; and which have no queries in it at all, and rest.
//
//                0 .. whole.first .. whole.end .. tiles
//     causal     [        seen whole        ][cut]
//     window     [cut][        seen whole        ][cut]
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/schedule.hpp>
#include <imbrex/kernels/attention/work.hpp>

namespace imbrex {

// From `first` up to, not including, `end`.
struct tile_range {
    int first;
    int end;

    IMBREX_FN bool has(int tile) const { return (tile >= first) & (tile < end); }
};

struct attention_piece : attention_work {
    int first_tile;  // of the sequence's
    int tiles;
    tile_range whole;
    int first_row;     // of the tensors, where its queries are
    unsigned skipped;  // the last tile, by which groups: a bit each; all tiles, by which: a bit each from `resting` on

    static constexpr int resting = 16;
    IMBREX_FN static bool skips(unsigned groups, int group) { return (groups >> group & 1) != 0; }
    IMBREX_FN static bool rests(unsigned groups, int group) { return skips(groups, resting + group); }
    IMBREX_FN bool skipped_by(int group) const { return skips(skipped, group); }

    // has_keys of one that is held in a ring, of which only what is asked for is read.
    template <class Held>
    IMBREX_KERNEL static bool has_keys_in(const Held& held) {
        const key_range keys = held.get(&attention_piece::keys);
        return keys.end > keys.first;
    }
};

// Piece `number` of the order, in blocks of so many queries (rows) and tiles of so many keys (columns).
template <int Rows, int Columns, int GroupRows, bool CanSkip, class Lengths, class Mask>
IMBREX_KERNEL attention_piece attention_piece_at(int number, const attention_order& order, const Lengths& lengths,
                                                 const Mask& mask) {
    const attention_work one = attention_work_at(number, Rows, GroupRows, order, lengths, mask);
    const auto whole = [&](int first, int end) {
        return one.sees_whole(one.queries, {first * Columns, end * Columns}, mask);
    };
    const int first_tile = one.keys.first / Columns;
    const int end_tile = (one.keys.end + Columns - 1) / Columns;
    int end_whole = end_tile;
    while (end_whole > first_tile && !whole(end_whole - 1, end_whole)) --end_whole;
    int first_whole = whole(first_tile, end_whole) ? first_tile : end_whole;
    while (first_whole > first_tile && whole(first_whole - 1, first_whole)) --first_whole;
    unsigned skipped = 0;
    if constexpr (GroupRows < Rows) {
        for (int group = (one.queries.end - one.queries.first + GroupRows - 1) / GroupRows; group < Rows / GroupRows;
             ++group) {
            skipped |= 1U << (attention_piece::resting + group);
        }
    }
    if constexpr (CanSkip) {
        // A tile behind whose last key there is something else is looked at by all.
        const bool ends_early = lengths.keys_end_early() && end_tile * Columns > one.sequence.keys;
        const bool may = end_tile - first_tile > 1 && !ends_early;
        for (int first = one.queries.first, bit = 1; first < one.queries.end; first += GroupRows, bit *= 2) {
            const int end = first + GroupRows < one.queries.end ? first + GroupRows : one.queries.end;
            const bool sees = mask.keys(one.sequence, {first, end}).end > (end_tile - 1) * Columns;
            if (may && !sees) skipped |= bit;
        }
    }
    return {one,
            first_tile,
            end_tile - first_tile,
            {first_whole - first_tile, end_whole - first_tile},
            lengths.first_query(one.sequence.batch) + one.queries.first,
            skipped};
}

}  // namespace imbrex
