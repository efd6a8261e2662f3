// The producer warp of the Hopper decode kernels: it walks the splits of its block, looks up their pages in the block
// table and issues TMA copies into the ring of stages. It publishes each split to the consumers before it issues the
// split's first copy.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

// The tensors may have fewer columns than head_dim; TMA fills the rest with zeros.
template <class In, class Mask, class Score, class Tile>
struct decode_tma_arguments : decode_arguments<In, Mask, Score> {
    tma_tensor<Tile, 4> k;
    tma_tensor<Tile, 4> v;
    bool pdl_prefetch;  // PDL: read all but the new tokens' keys before the preceding kernel ends
};

// The ring of K/V stages, the buffers of the consumers, and the queue of splits.
template <class Stage, int Stages, class ConsumerMemory>
struct decode_tma_shared_memory {
    pipeline_items<Stage, Stages> items;
    ConsumerMemory consumer_memory;
    pipeline_barriers<Stage, Stages> ring;
    dynamic_tile_scheduler<4, decode_split> splits;
};

// One producer warp, produce(warp, splits, stages), and consumer warps, consume(warp, splits, stages).
// `releasing_warps` consumers release each stage.
template <int Consumers, class Block, class Arguments, class Memory, class Produce, class Consume>
IMBREX_KERNEL void run_warp_specialised(Block& block, const Arguments& args, Memory& shared, int releasing_warps,
                                        const Produce& produce, const Consume& consume) {
    prefetch_descriptor(block, args.k);
    prefetch_descriptor(block, args.v);
    shared.ring.init(block, shared.items.items, releasing_warps);
    shared.splits.init(block, Consumers);
    fence_barriers(block);
    block.sync();
    if (!args.pdl_prefetch) pdl_wait(block);
    pdl_launch_dependents(block);
    block.roles(producer<40>([&](warp& self) {
                    auto stages = shared.ring.producer(self, shared.items.items);
                    auto splits = shared.splits.draw(self, block, 0, nullptr);
                    produce(self, splits, stages);
                }),
                single_warps<Consumers, 232>("consumer", [&](warp& self) {
                    auto splits = shared.splits.read(self);
                    auto stages = shared.ring.consumer(self, shared.items.items);
                    if (args.pdl_prefetch) pdl_wait(self);
                    consume(self, splits, stages);
                }));
}

// A tile takes several TMA copies, none of which crosses a page: copied_rows rows each. The lanes of the warp look up
// the block table for 32 copies at once, from the first copy of `tile` on.
using page_copy_coords = hw::lane_values<paged_seqlens::page_location, warp::threads>;
template <int BlockN, class Arguments>
IMBREX_KERNEL page_copy_coords gather_page_coords(warp& self, const decode_split& split, int tile,
                                                  const Arguments& args) {
    return warp_gather<warp::threads>(self, [&](int number) {
        const int rows_per_copy = args.k.copied_rows;
        const paged_seqlens::page_location at =
            args.lengths.locate(split, (split.first_tile + tile) * BlockN + number * rows_per_copy, rows_per_copy);
        const int pages = static_cast<int>(args.k.extents[0]);
        hw::require_in_kernel(at.page >= 0 && at.page < pages,
                              "paged_kv.block_table: page %d of sequence %d; there are %d pages", at.page,
                              split.sequence.batch, pages);
        return at;
    });
}

// The copies of one tile.
struct tile_page_coords {
    const warp& scope;
    const page_copy_coords& coords;
    int first;
    int rows;  // of each copy

    IMBREX_KERNEL paged_seqlens::page_location operator[](int number) const {
        return warp_broadcast(scope, coords, first + number);
    }
};

// Copies the tiles of a split. `coords` are those of the first 32 copies.
template <int BlockN, class Arguments, class Fill>
IMBREX_KERNEL void produce_split(warp& self, const decode_split& split, page_copy_coords coords, const Arguments& args,
                                 bool& must_wait, const Fill& fill) {
    const int rows_per_copy = args.k.copied_rows, copies_per_tile = BlockN / rows_per_copy;
    for (int tile = 0, gathered = 0; tile < split.num_tiles; ++tile, gathered += copies_per_tile) {
        if (gathered == warp::threads) {
            coords = gather_page_coords<BlockN>(self, split, tile, args);
            gathered = 0;
        }
        if (must_wait && (split.first_tile + tile + 1) * BlockN > split.sequence.offset()) {
            pdl_wait(self);
            must_wait = false;
        }
        fill(tile_page_coords{self, coords, gathered, rows_per_copy}, split.kv_head);
    }
}

// Copies all splits of a block. fill(copies, kv_head) copies the keys and values of a tile.
template <int BlockN, class Block, class Arguments, class Scheduler, class Queue, class Fill>
IMBREX_KERNEL void produce_splits(warp& self, const Block& block, const Arguments& args, const Scheduler& scheduler,
                                  Queue& queue, const Fill& fill) {
    bool must_wait = args.pdl_prefetch;  // the preceding kernel may write the keys of the new tokens
    scheduler.for_each_split(self, block.index().x, [&](decode_split& split, const auto& complete) {
        // Read the block table for the first tiles before anything else.
        const page_copy_coords coords = gather_page_coords<BlockN>(self, split, 0, args);
        complete(split);
        queue.publish(split);
        produce_split<BlockN>(self, split, coords, args, must_wait, fill);
    });
    queue.publish({});  // end of work
}

// Copies keys and values of one KV head into a stage, from copy `copy_idx` on; returns the next copy. Keys outside the
// visible range become zero. (Each KV head broadcasts the coordinates again: copies that are issued further apart were
// measured to be faster.)
template <class Tile, class Slot, class Arguments>
IMBREX_KERNEL int load_from_pages(warp& self, decode_stage<Tile>& to, const Arguments& args,
                                  const tile_page_coords& tile_coords, int copy_idx, int kv_head, const Slot& slot) {
    static_for<Tile::rows / page_size_step>([&](auto number) {
        if (number * tile_coords.rows >= Tile::rows) return;
        const paged_seqlens::page_location at = tile_coords[copy_idx++];
        const bool none = at.row >= args.k.extents[2];
        const auto load = [&](Tile& tile, const tma_tensor<Tile, 4>& from) {
            const auto found = from.at(at.page, kv_head, at.row, 0);
            load_rows_async(self, tile, number * tile_coords.rows, none ? found.out_of_bounds_fill() : found, slot);
        };
        load(to.k, args.k);
        load(to.v, args.v);
    });
    return copy_idx;
}

}  // namespace imbrex
