// Producer of the Hopper attention kernel: three warps that run ahead of the consumers as far as their pipelines have
// free stages. Warp 0 draws work tiles from the tile scheduler and finds out which key tiles they see, warp 1 loads K
// and the Q of each work tile, warp 2 loads V. All loads are TMA.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

template <class Kernel>
class attention_producer {
  protected:
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using work_tile = attention_work_tile;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int consumer_warpgroups = Kernel::consumer_warpgroups;
    static constexpr int warpgroup_rows = Kernel::warpgroup_rows;

  public:
    template <class Block>
    IMBREX_KERNEL static void run(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        if (self.index() == 0) {
            plan(self, block, args, shared);
        } else if (self.index() == 1) {
            feed_keys(self, args, shared);
        } else {
            feed_values(self, args, shared);
        }
    }

  protected:
    template <class Block>
    IMBREX_KERNEL static void plan(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        const int total = args.scheduler.total(args.lengths);
        auto drawing = shared.ring.work.draw(self, block, total, args.tile_counter);
        for (int number = drawing.draw(); number < total; number = drawing.draw()) {
            const work_tile one =
                attention_work_tile_at<Kernel::block_m, block_n, Kernel::block_m_step, Kernel::can_skip_last_tile>(
                    number, args.scheduler, args.lengths, args.mask);
            if (one.exists()) drawing.publish(one);
        }
        drawing.publish({});  // an empty work tile ends the loop
    }

    IMBREX_KERNEL static void feed_keys(warp& self, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        auto q = shared.ring.q.producer(self, shared.queries);
        auto k = shared.ring.k.producer(self, shared.keys);
        for_each_tile(self, args, shared, [&](const work_tile& now, int tile, const auto& page_location) {
            page_location.load(self, args.k, k.acquire());
            if (tile != now.tiles - 1) return;
            // Q after the first K: its stage is released later.
            auto slot = q.acquire();
            for (int i = 0; i < consumer_warpgroups; ++i) {
                const auto from = args.q.at(args.lengths.member(now.sequence.batch), now.sequence.head,
                                            now.first_row + i * warpgroup_rows, 0);
                load_async(self, slot->group[i], from.out_of_bounds_fill(), slot);
            }
        });
    }

    IMBREX_KERNEL static void feed_values(warp& self, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.v);
        auto v = shared.ring.v.producer(self, shared.values);
        unsigned cleaned = 0;
        for_each_tile(self, args, shared, [&](const work_tile& now, int tile, const auto& page_location) {
            const int exist = now.sequence.seqlen_k - (now.first_tile + tile) * block_n;
            if (!args.lengths.keys_end_early() || exist >= block_n) {
                page_location.load(self, args.v, v.acquire());
                return;
            }
            // Rows behind the last key may hold anything, even NaN, and 0 * NaN is NaN: they become zero.
            auto slot = v.acquire_for_transform(shared.ring.landed);
            page_location.load(self, args.v, slot);
            shared.ring.landed.wait_converged(self, cleaned++);
            fill_rows(self, *slot, exist, typename Kernel::element(0.0f));
            fence_async(self);
            v.publish(slot);
        });
    }

    // The key tiles of all work tiles, each from last to first: visit(work tile, tile index, where the tile is).
    template <class Visit>
    IMBREX_KERNEL static void for_each_tile(warp& self, const arguments& args, shared_memory& shared, Visit visit) {
        for_each_tile_row(self, args, shared, [&](const work_tile& now, int tile, int kv_head, int row) {
            visit(now, tile, kv_tile<block_n>(self, args.lengths, now, kv_head, row, args.k.copied_rows));
        });
    }
    // The same with the KV head and the first row of a tile, as kv_tile takes them.
    template <class Visit>
    IMBREX_KERNEL static void for_each_tile_row(warp& self, const arguments& args, shared_memory& shared, Visit visit) {
        auto work_tiles = shared.ring.work.read(self);
        for (work_tile now = work_tiles.next(); now.exists(); now = work_tiles.next()) {
            if (!now.has_keys()) continue;
            const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
            const int first_key = args.lengths.first_key(now.sequence.batch);
            for (int tile = now.tiles - 1; tile >= 0; --tile) {
                visit(now, tile, kv_head, first_key + (now.first_tile + tile) * block_n);
            }
        }
    }
};

}  // namespace imbrex
