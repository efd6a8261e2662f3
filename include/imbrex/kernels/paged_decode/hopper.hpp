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
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/kernels/paged_decode/feed.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/tma.hpp>
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
    static constexpr int unit_heads = 1;
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
        decode_plan<rows, columns, Mask> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
        feed_pieces<columns>(self, block, args, plan, passing, stages,
                             [&](const auto& slot, int row, const paged_lengths::place& at, int key_head) {
                                 load_from_page(self, slot->k, row, args.k, at, key_head, slot);
                                 load_from_page(self, slot->v, row, args.v, at, key_head, slot);
                             });
    }
};

}  // namespace imbrex
