// The warp that has a block's keys and values copied from their pages into a ring, by the copy engine: piece by piece as they are
// planned, and stage by stage. The consumers are told of each piece before its first copy is asked for.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/hw/requirement.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tensor.hpp>

namespace imbrex {

// Columns may be fewer than the depth; those that do not exist are taken as zero.
template <class In, class Mask, class Score, class Tile>
struct fed_arguments : decode_arguments<In, Mask, Score> {
    tensor<Tile, 4> k;
    tensor<Tile, 4> v;
    bool early;  // the cache is read while the kernel before still runs, but for the new tokens' keys
};

// Stages of keys and values, room for what consumers need besides, and the pieces that they are told of.
template <class Stage, int Stages, class Room>
struct fed_memory {
    pipeline_items<Stage, Stages> items;
    Room room;
    pipeline_barriers<Stage, Stages> ring;
    tile_queue<4, decode_piece> pieces;
};

// A block of one warp that feeds, feed(warp, pieces, stages), and so many that consume(warp, pieces, stages), of which `holders` have
// to give back each stage.
template <int Consumers, class Block, class Arguments, class Memory, class Feed, class Consume>
IMBREX_KERNEL void run_fed(Block& block, const Arguments& args, Memory& shared, int holders, const Feed& feed,
                           const Consume& consume) {
    prefetch_descriptor(block, args.k);
    prefetch_descriptor(block, args.v);
    shared.ring.init(block, shared.items.items, holders);
    shared.pieces.init(block, Consumers);
    fence_barriers(block);
    block.sync();
    if (!args.early) wait_for_kernel_before(block);
    allow_next_kernel(block);
    block.roles(producer<40>([&](warp& self) {
                    auto stages = shared.ring.producer(self, shared.items.items);
                    auto pieces = shared.pieces.draw(self, block, 0, nullptr);
                    feed(self, pieces, stages);
                }),
                single_warps<Consumers, 232>("consumer", [&](warp& self) {
                    auto pieces = shared.pieces.read(self);
                    auto stages = shared.ring.consumer(self, shared.items.items);
                    if (args.early) wait_for_kernel_before(self);
                    consume(self, pieces, stages);
                }));
}

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

// Those of a step, in their order.
struct parts_of_step {
    const warp& scope;
    const places_of_parts& places;
    int first;
    int rows;  // of each

    IMBREX_KERNEL paged_lengths::place operator[](int number) const { return entry(scope, places, first + number); }
};

// The keys of a piece. The first places have been looked up.
template <int StepKeys, class Arguments, class Fill>
IMBREX_KERNEL void feed_piece(warp& self, const decode_piece& piece, places_of_parts places, const Arguments& args,
                              bool& waits, const Fill& fill) {
    const int rows_of_part = args.k.copied_rows, in_step = StepKeys / rows_of_part;
    for (int step = 0, looked_up = 0; step < piece.steps; ++step, looked_up += in_step) {
        if (looked_up == warp::threads) {
            places = look_up_pages<StepKeys>(self, piece, step, args);
            looked_up = 0;
        }
        if (waits && (piece.step + step + 1) * StepKeys > piece.sequence.offset()) {
            wait_for_kernel_before(self);
            waits = false;
        }
        fill(parts_of_step{self, places, looked_up, rows_of_part}, piece.key_head);
    }
}

// All pieces of a block. fill(parts, key head) has a step's keys and values copied.
template <int StepKeys, class Block, class Arguments, class Plan, class Passing, class Fill>
IMBREX_KERNEL void feed_pieces(warp& self, const Block& block, const Arguments& args, const Plan& plan,
                               Passing& passing, const Fill& fill) {
    bool waits = args.early;  // for the kernel before, which may write the keys of the new tokens
    plan.for_each_piece(self, block.index().x, [&](decode_piece& piece, const auto& complete) {
        // Which pages are the first is asked for before all else.
        const places_of_parts places = look_up_pages<StepKeys>(self, piece, 0, args);
        complete(piece);
        passing.pass_on(piece);
        feed_piece<StepKeys>(self, piece, places, args, waits, fill);
    });
    passing.pass_on({});  // no piece at all: it is over
}

// A stage's keys and values of one head, from this part on; says which is the first behind them. What lies in no page is not seen.
// (Parts are looked at again for each head: copies that follow each other less closely were measured to be faster.)
template <class Tile, class Slot, class Arguments>
IMBREX_KERNEL int load_from_pages(warp& self, decode_stage<Tile>& to, const Arguments& args, const parts_of_step& parts,
                                  int part, int key_head, const Slot& slot) {
    for_each_constant<Tile::rows / page_step>([&](auto number) {
        if (number * parts.rows >= Tile::rows) return;
        const paged_lengths::place at = parts[part++];
        const bool none = at.row >= args.k.extents[2];
        const auto load = [&](Tile& tile, const tensor<Tile, 4>& from) {
            const auto found = from.at(at.page, key_head, at.row, 0);
            load_rows_async(self, tile, number * parts.rows, none ? found.may_be_outside() : found, slot);
        };
        load(to.k, args.k);
        load(to.v, args.v);
    });
    return part;
}

}  // namespace imbrex
