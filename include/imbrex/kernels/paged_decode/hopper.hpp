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
#include <imbrex/tile/shared_arena.hpp>

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

    using arguments = fed_arguments<In, Mask, Score, key_tile>;
    using shared_memory = fed_memory<stage, Shape.stages, typename consumers::shared_memory>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const auto feed = [&](warp& self, auto& pieces, auto& stages) {
            decode_plan<rows, columns, Mask> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
            feed_pieces<columns>(self, block, args, plan, pieces, [&](const parts_of_step& parts, int key_head) {
                auto slot = stages.acquire();
                load_from_pages(self, *slot, args, parts, 0, key_head, slot);
            });
        };
        run_fed<consumers::count>(
            block, args, shared, consumers::groups, feed,
            [&](warp& self, auto& pieces, auto& stages) { consumers::run(self, args, shared.room, pieces, stages); });
    }
};

}  // namespace imbrex
