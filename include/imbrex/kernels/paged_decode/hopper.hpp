// Split-KV decode kernel for Hopper: bound by memory bandwidth, it reads the KV cache once. A persistent kernel with
// one warp-specialised block per SM.
//
//   producer     one warp that runs the scheduler (paged_decode/scheduler.hpp) and copies K/V tiles by TMA into a ring
//   consumers    eight warps that attend and merge (paged_decode/consumer.hpp); the next copies go on meanwhile
//
// Masked tiles are not read. Rows past the last key may hold anything, even NaN.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/consumer.hpp>
#include <imbrex/kernels/paged_decode/consumer_interface.hpp>
#include <imbrex/kernels/paged_decode/producer.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/tile/shared_arena.hpp>

namespace imbrex {

template <class In, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          decode_shape Shape = decode_shape{}, attention_output_mode Result = attention_output_mode::normalised,
          class Cache = In>
struct paged_decode_hopper {
    using consumers = decode_consumer<In, HeadDim, Shape, Result, Cache>;
    static_assert(decode_split_consumer<consumers>, "imbrex: see paged_decode/consumer_interface.hpp");
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int warps = 4 + consumers::count;
    static constexpr int kv_heads_per_item = 1;
    static constexpr int block_m = consumers::block_m;
    static constexpr int block_n = Shape.block_n;
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    using arguments = decode_tma_arguments<In, Mask, Score, key_tile>;
    using shared_memory = decode_tma_shared_memory<stage, Shape.stages, typename consumers::shared_memory>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: the ring of stages exceeds shared memory");

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
