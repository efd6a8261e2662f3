// A piece of work as a block is told of it by the warp that plans: the tiles of keys that any of its queries sees, and those
// among them that all see whole, so that nobody else asks the mask about a whole tile. They are counted from the first.
//
//                0 .. first_whole .. end_whole .. tiles
//     causal     [        seen whole        ][cut]
//     window     [cut][        seen whole        ][cut]
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/schedule.hpp>
#include <imbrex/kernels/attention/work.hpp>

namespace imbrex {

struct attention_piece : attention_work {
    int first_tile;  // of the sequence's
    int tiles;
    int first_whole;
    int end_whole;
    int first_row;  // of the tensors, where its queries are

    IMBREX_FN bool all_see_whole(int tile) const { return (tile >= first_whole) & (tile < end_whole); }
};

// Piece `number` of the order, in blocks of so many queries (rows) and tiles of so many keys (columns).
template <int Rows, int Columns, class Lengths, class Mask>
IMBREX_KERNEL attention_piece attention_piece_at(int number, const attention_order& order, const Lengths& lengths,
                                                 const Mask& mask) {
    const attention_work one = attention_work_at(number, Rows, order, lengths, mask);
    const auto whole = [&](int first, int end) {
        return one.sees_whole(one.queries, {first * Columns, end * Columns}, mask);
    };
    const int first_tile = one.keys.first / Columns;
    const int end_tile = (one.keys.end + Columns - 1) / Columns;
    int end_whole = end_tile;
    while (end_whole > first_tile && !whole(end_whole - 1, end_whole)) --end_whole;
    int first_whole = whole(first_tile, end_whole) ? first_tile : end_whole;
    while (first_whole > first_tile && whole(first_whole - 1, first_whole)) --first_whole;
    return {one,
            first_tile,
            end_tile - first_tile,
            first_whole - first_tile,
            end_whole - first_tile,
            lengths.first_query(one.sequence.batch) + one.queries.first};
}

}  // namespace imbrex
