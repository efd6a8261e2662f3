// What the blocks that share a row tell one another. Each has a board, all zeros at first, and writes at places that are its own; then the
// boards of all blocks are added up, which puts what they wrote side by side. So a block needs to know nothing of what the others had to
// tell, and one pass through their shared memory brings all of it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/sample/cut.hpp>
#include <imbrex/kernels/sample/options.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/chunk_scan.hpp>
#include <imbrex/ops/register/chunks.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/chunk_tile.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex::detail {

// A score as it stands on a board, and back: -infinity, which is none, is 0.
IMBREX_FN float score_on_board(float score) {
    const std::int32_t none = __builtin_bit_cast(std::int32_t, nothing_is_less);
    return __builtin_bit_cast(float, __builtin_bit_cast(std::int32_t, score) ^ none);
}

struct board_places {
    static constexpr int count = 256;
    shared_vector<float, count> scores;
    shared_vector<int, count> tokens;
    shared_vector<int, count> words;
};
// The same bytes as they are added up.
struct board_tiles {
    static constexpr int count = 6;
    shared_tile<std::int32_t, 16, 8> tiles[count];
};
using sample_board = overlay<board_places, board_tiles>;
static_assert(sizeof(board_places) == sizeof(board_tiles), "imbrex: a board is added up as a whole");

// Elements of a shared vector, one to each of a warp's threads.
template <int Count, class Vector, class Function>
IMBREX_KERNEL auto look_up_in(const warp& self, const Vector& vector, Function function,
                              source here = source::current()) {
    hw::visit_vector(
        self, hw::use::read, here, [](int, const auto&) {}, vector);
    return look_up<Count>(self, function, here);
}

// Two are told in a launch: the first to all blocks, the second to the first block alone.
template <int Warps, int Sharers>
struct shared_boards {
    static_assert(Warps >= board_tiles::count, "imbrex: each part of a board has a warp to add it up");
    sample_board own[2], all;
    transaction_barrier told[2];

    template <class Block>
    IMBREX_KERNEL void init(const Block& block) {
        for (int i = 0; i < 2; ++i) {
            told[i].init(block, Sharers);
            board_places& places = own[i].template as<board_places>();
            const auto zero = [](int) { return 0; };
            fill_by(block, places.scores, zero);
            fill_by(block, places.tokens, zero);
            fill_by(block, places.words, zero);
        }
    }

    IMBREX_KERNEL board_places& first() { return own[0].template as<board_places>(); }
    IMBREX_KERNEL board_places& second() { return own[1].template as<board_places>(); }
    IMBREX_KERNEL const board_places& sum() { return all.template as<board_places>(); }

    IMBREX_KERNEL void tell_all(const warp& self, source here = source::current()) {
        sample_meeting<Warps>::sync(self, here);
        if (self.index() == 0) {
            fence_cluster(self, here);
            for (int rank = 0; rank < Sharers; ++rank) told[0].arrive_at(self, rank, here);
        }
        add_up(self, 0, here);
    }
    // Only the first block may look at the sum.
    IMBREX_KERNEL void tell_first(const warp& self, int rank, source here = source::current()) {
        sample_meeting<Warps>::sync(self, here);
        if (self.index() == 0) {
            fence_cluster(self, here);
            told[1].arrive_at(self, 0, here);
        }
        if (rank == 0) add_up(self, 1, here);
    }

  private:
    IMBREX_KERNEL void add_up(const warp& self, int which, source here) {
        if (self.index() < board_tiles::count) {
            told[which].wait(self, 0, here);
            fence_cluster(self, here);
            const auto& from = own[which].template as<board_tiles>().tiles[self.index()];
            // All are asked for before any is waited for.
            warp_tile<std::int32_t, 16, 8> parts[Sharers];
            for (int rank = 0; rank < Sharers; ++rank) load_from_block(self, parts[rank], from, rank, here);
            for (int rank = 1; rank < Sharers; ++rank) combine(self, parts[0], parts[rank], add{}, here);
            store(self, all.template as<board_tiles>().tiles[self.index()], parts[0], here);
        }
        sample_meeting<Warps>::sync(self, here);
    }
};

// The scores on a board as a row.
using board_row = chunk_tile<float, 1, board_places::count>;
IMBREX_KERNEL void load_scores_of(const warp& self, board_row& row, const board_places& board,
                                  source here = source::current()) {
    hw::visit_vector(
        self, hw::use::read, here, [](int, const float&) {}, board.scores);
    load_rows_from<row_chunks::whole>(
        self, row, [&](int) { return board.scores.at(0); }, board_places::count, here);
    map_columns(
        self, row, [](int, float one) { return score_on_board(one); }, row, here);
}

}  // namespace imbrex::detail
