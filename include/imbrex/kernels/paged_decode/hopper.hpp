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
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/kernels/paged_decode/producer.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/tile/shared_arena.hpp>

namespace imbrex {

template <class In, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          decode_shape Shape = decode_shape{}, attention_output_mode Result = attention_output_mode::normalised,
          class Cache = In>
struct paged_decode_hopper {
    using consumers = decode_consumer<In, HeadDim, Shape, Result, Cache>;
    static constexpr bool needs_hopper = true;
    static constexpr bool uses_pdl = true;
    static constexpr int warps = 4 + consumers::count;
    static constexpr int kv_heads_per_item = 1;
    static constexpr int block_m = consumers::block_m;
    static constexpr int block_n = Shape.block_n;
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    using arguments = decode_tma_arguments<In, Mask, Score, key_tile>;
    using shared_memory = decode_tma_shared_memory<stage, Shape.stages, typename consumers::shared_memory>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const auto produce = [&](warp& self, auto& splits, auto& stages) {
            decode_scheduler<block_m, block_n, Mask> scheduler(self, args.schedule, args.lengths, args.mask,
                                                               block.count().x);
            produce_splits<block_n>(self, block, args, scheduler, splits,
                                    [&](const tile_page_coords& coords, int kv_head) {
                                        auto slot = stages.acquire();
                                        load_from_pages(self, *slot, args, coords, 0, kv_head, slot);
                                    });
        };
        run_warp_specialised<consumers::count>(block, args, shared, consumers::warps_m, produce,
                                               [&](warp& self, auto& splits, auto& stages) {
                                                   consumers::run(self, args, shared.consumer_memory, splits, stages);
                                               });
    }
};

}  // namespace imbrex
