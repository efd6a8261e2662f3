// Attention of a few new tokens of each sequence to keys and values in pages, where the time goes into reading these once. Made
// for Hopper: a persistent grid of one block a multiprocessor.
//
//   producer     finds out the block's pieces of work (paged_decode/plan.hpp) and has their keys and values copied, some keys at a
//                time, into a ring of stages
//   consumers    eight warps, which attend and put results together (paged_decode/consumers.hpp); meanwhile the copies of the next
//                piece go on
//
// What no row sees is not read. Behind the last key there may be anything, even NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/hw/requirement.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/tensor.hpp>

namespace imbrex {

template <class In, int Depth, class Mask = full_mask, class Score = plain_score, decode_shape Shape = decode_shape{},
          attention_result Result = attention_result::normalised, class Cache = In>
struct paged_decode_hopper {
    using consumers = decode_consumers<In, Depth, Shape, Result, Cache>;
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int warps = 4 + consumers::count;
    static constexpr int rows = consumers::rows;
    static constexpr int columns = Shape.keys;
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    // Columns may be fewer than the depth; those that do not exist are taken as zero.
    struct arguments : decode_arguments<In, Mask, Score> {
        tensor<key_tile, 4> k;
        tensor<key_tile, 4> v;
        bool early;  // the cache is read while the kernel before still runs, but for the new tokens' keys
    };
    struct shared_memory {
        pipeline_items<stage, Shape.stages> items;
        typename consumers::shared_memory consumed;
        pipeline_barriers<stage, Shape.stages> ring;
        tile_queue<4, decode_piece> pieces;
    };
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.k);
        prefetch_descriptor(block, args.v);
        shared.ring.init(block, shared.items.items, consumers::groups);
        shared.pieces.init(block, consumers::count);
        fence_barriers(block);
        block.sync();
        if (!args.early) wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.roles(producer<40>([&](warp& self) { produce(self, block, args, shared); }),
                    single_warps<consumers::count, 232>("consumer", [&](warp& self) {
                        auto pieces = shared.pieces.read(self);
                        auto stages = shared.ring.consumer(self, shared.items.items);
                        if (args.early) wait_for_kernel_before(self);
                        consumers::run(self, args, shared.consumed, pieces, stages);
                    }));
    }

  private:
    template <class Block>
    IMBREX_KERNEL static void produce(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto stages = shared.ring.producer(self, shared.items.items);
        auto passing = shared.pieces.draw(self, block, 0, nullptr);
        bool waits = args.early;  // for the kernel before, which may write the keys of the new tokens
        decode_plan<rows, columns, Mask> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
        plan.for_each_piece(self, block.index().x, [&](decode_piece& piece, const auto& complete) {
            // Which pages are the first is asked for before all else.
            const places_of_parts places = look_up_pages(self, piece, 0, args);
            complete(piece);
            passing.pass_on(piece);
            feed(self, piece, places, args, stages, waits);
        });
        passing.pass_on({});  // no piece at all: it is over
    }

    // A stage is put together from as many rows of a page at a time as the tensors copy. The lanes look up the pages of many of
    // these parts at once, from that of a step on.
    using places_of_parts = hw::lane_values<paged_lengths::place, warp::threads>;
    IMBREX_KERNEL static places_of_parts look_up_pages(warp& self, const decode_piece& piece, int step,
                                                       const arguments& args) {
        return look_up<warp::threads>(self, [&](int number) {
            const int rows_of_part = args.k.copied_rows;
            const paged_lengths::place at =
                args.lengths.place_of(piece, (piece.step + step) * columns + number * rows_of_part, rows_of_part);
            const int pages = static_cast<int>(args.k.extents[0]);
            hw::require_in_kernel(at.page >= 0 && at.page < pages,
                                  "pages.table: page %d of sequence %d; there are %d pages", at.page,
                                  piece.sequence.batch, pages);
            return at;
        });
    }

    // The keys of a piece, stage by stage. The first places have been looked up.
    template <class Stages>
    IMBREX_KERNEL static void feed(warp& self, const decode_piece& piece, places_of_parts places, const arguments& args,
                                   Stages& stages, bool& waits) {
        const int rows_of_part = args.k.copied_rows, in_stage = columns / rows_of_part;
        for (int step = 0, looked_up = 0; step < piece.steps; ++step, looked_up += in_stage) {
            if (looked_up == warp::threads) {
                places = look_up_pages(self, piece, step, args);
                looked_up = 0;
            }
            if (waits && (piece.step + step + 1) * columns > piece.sequence.offset()) {
                wait_for_kernel_before(self);
                waits = false;
            }
            auto slot = stages.acquire();
            for (int part = 0; part < in_stage; ++part) {
                const paged_lengths::place at = entry(self, places, looked_up + part);
                load_part(self, slot->k, part * rows_of_part, args.k, at, piece.key_head, slot);
                load_part(self, slot->v, part * rows_of_part, args.v, at, piece.key_head, slot);
            }
        }
    }
    template <class Slot>
    IMBREX_KERNEL static void load_part(warp& self, key_tile& to, int row, const tensor<key_tile, 4>& from,
                                        const paged_lengths::place& at, int key_head, const Slot& slot) {
        const auto found = from.at(at.page, key_head, at.row, 0);
        const bool none = at.row >= from.extents[2];
        load_rows_async(self, to, row, none ? found.may_be_outside() : found, slot);
    }
};

}  // namespace imbrex
