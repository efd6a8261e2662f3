// The warp that has a block's keys and values copied from their pages into a ring, by the copy engine: piece by piece as they are
// planned, and stage by stage. The consumers are told of each piece before its first copy is asked for.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/requirement.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/tensor.hpp>

namespace imbrex {

// A stage is put together from as many rows of a page at a time as the tensors copy. The lanes look up the pages of many of these
// parts at once, from that of a step on.
using places_of_parts = hw::lane_values<paged_lengths::place, warp::threads>;
template <int StepKeys, class Arguments>
IMBREX_KERNEL places_of_parts look_up_pages(warp& self, const decode_piece& piece, int step, const Arguments& args) {
    return look_up<warp::threads>(self, [&](int number) {
        const int rows_of_part = args.k.copied_rows;
        const paged_lengths::place at =
            args.lengths.place_of(piece, (piece.step + step) * StepKeys + number * rows_of_part, rows_of_part);
        const int pages = static_cast<int>(args.k.extents[0]);
        hw::require_in_kernel(at.page >= 0 && at.page < pages,
                              "pages.table: page %d of sequence %d; there are %d pages", at.page, piece.sequence.batch,
                              pages);
        return at;
    });
}

// The keys of a piece. The first places have been looked up.
template <int StepKeys, class Arguments, class Stages, class Copy>
IMBREX_KERNEL void feed_piece(warp& self, const decode_piece& piece, places_of_parts places, const Arguments& args,
                              Stages& stages, bool& waits, const Copy& copy) {
    const int rows_of_part = args.k.copied_rows, in_stage = StepKeys / rows_of_part;
    for (int step = 0, looked_up = 0; step < piece.steps; ++step, looked_up += in_stage) {
        if (looked_up == warp::threads) {
            places = look_up_pages<StepKeys>(self, piece, step, args);
            looked_up = 0;
        }
        if (waits && (piece.step + step + 1) * StepKeys > piece.sequence.offset()) {
            wait_for_kernel_before(self);
            waits = false;
        }
        auto slot = stages.acquire();
        for (int part = 0; part < in_stage; ++part) {
            copy(slot, part * rows_of_part, entry(self, places, looked_up + part), piece.key_head);
        }
    }
}

// All pieces of a block. copy(slot, row, place, key head) has what is at a place copied to a stage, from this row of it on.
template <int StepKeys, class Block, class Arguments, class Plan, class Passing, class Stages, class Copy>
IMBREX_KERNEL void feed_pieces(warp& self, const Block& block, const Arguments& args, const Plan& plan,
                               Passing& passing, Stages& stages, const Copy& copy) {
    bool waits = args.early;  // for the kernel before, which may write the keys of
                              // the new tokens
    plan.for_each_piece(self, block.index().x, [&](decode_piece& piece, const auto& complete) {
        // Which pages are the first is asked for before all else.
        const places_of_parts places = look_up_pages<StepKeys>(self, piece, 0, args);
        complete(piece);
        passing.pass_on(piece);
        feed_piece<StepKeys>(self, piece, places, args, stages, waits, copy);
    });
    passing.pass_on({});  // no piece at all: it is over
}

// Rows of one head that lie in one page, or none of them.
template <class Tile, class Slot>
IMBREX_KERNEL void load_from_page(warp& self, Tile& to, int row, const tensor<Tile, 4>& from,
                                  const paged_lengths::place& at, int key_head, const Slot& slot) {
    const auto found = from.at(at.page, key_head, at.row, 0);
    const bool none = at.row >= from.extents[2];
    load_rows_async(self, to, row, none ? found.may_be_outside() : found, slot);
}

}  // namespace imbrex
