// Producer of the Hopper attention kernel over an 8-bit KV cache: four warps.
//
//   warp 0        draws work tiles, loads Q, and loads K and V, a cache tile at a time, into two rings
//   warps 1, 2    upconvert K into the consumers' stages, every other cache tile each
//   warp 3        upconverts V
//
// Keys behind the last one become zero on the way: they may hold anything, even NaN, and 0 * NaN is NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/ops/warp/upconvert.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/tma_tensor.hpp>

namespace imbrex {

template <class Kernel>
class attention_8bit_cache_producer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using work_tile = attention_work_tile;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int cache_tile_rows = Kernel::k_cache_tile::rows;
    static constexpr int cache_tiles = block_n / cache_tile_rows;
    static constexpr int parts = cache_tile_rows / page_size_step;

  public:
    template <class Block>
    IMBREX_KERNEL static void run(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto& ring = shared.ring;
        if (self.index() == 0) {
            load(self, block, args, shared);
        } else if (self.index() <= Kernel::key_warps) {
            upconvert_tiles<Kernel::key_warps>(self, shared, ring.cache_k, shared.cache_keys, ring.k, shared.keys,
                                               args.k_scales, ring.k_scales, self.index() - 1);
        } else {
            upconvert_tiles<1>(self, shared, ring.cache_v, shared.cache_values, ring.v, shared.values, args.v_scales,
                               ring.v_scales, 0);
        }
    }

  private:
    template <class Block>
    IMBREX_KERNEL static void load(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        prefetch_descriptor(self, args.v);
        auto q = shared.ring.q.producer(self, shared.queries);
        auto k = shared.ring.cache_k.producer(self, shared.cache_keys);
        auto v = shared.ring.cache_v.producer(self, shared.cache_values);
        unsigned loaded = 0;
        const int total = args.scheduler.total(args.lengths);
        auto drawing = shared.ring.work.draw(self, block, total, args.tile_counter);
        for (int number = drawing.draw(); number < total; number = drawing.draw()) {
            const work_tile now =
                attention_work_tile_at<Kernel::block_m, block_n, Kernel::block_m_step, Kernel::can_skip_last_tile>(
                    number, args.scheduler, args.lengths, args.mask);
            if (!now.exists()) continue;
            drawing.publish(now);
            if (!now.has_keys()) continue;
            for (int tile = now.tiles - 1; tile >= 0; --tile, loaded += cache_tiles) {
                const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
                const int key = (now.first_tile + tile) * block_n;
                const auto pages = kv_tile<block_n>(self, args.lengths, now, kv_head, key, args.k.copied_rows);
                const auto load_tiles = [&](auto& ring, const auto& from, const kv_cache_scales& scales,
                                            auto& page_scales) {
                    copy_scales found = {};
                    if (scales.vary_by_page()) found = gather_scales(self, args, now, kv_head, key, scales);
                    load_cache_tiles(self, from, ring, pages, scales.vary_by_page(), found, page_scales, loaded);
                };
                load_tiles(k, args.k, args.k_scales, shared.ring.k_scales);
                // Q after the first K: its stage is released later.
                if (tile == now.tiles - 1) load_queries(self, args, now, q);
                load_tiles(v, args.v, args.v_scales, shared.ring.v_scales);
            }
        }
        drawing.publish({});  // an empty work tile ends the loop
    }

    // The scales of the pages that the copies of a key tile are in. The lanes read all of them at once.
    using copy_scales = hw::lane_values<float, block_n / page_size_step>;
    IMBREX_KERNEL static copy_scales gather_scales(warp& self, const arguments& args, const work_tile& now, int kv_head,
                                                   int key, const kv_cache_scales& scales) {
        const int rows = args.k.copied_rows;
        return warp_gather<block_n / page_size_step>(self, [&](int copy) {
            const paged_seqlens::page_location at = args.lengths.locate(now, key + copy * rows, rows);
            return at.row < args.lengths.page_size ? scales.of_page(at.page, kv_head) : 1.0f;
        });
    }

    // The cache tiles of a key tile, and the scales of their pages. `loaded`: how many cache tiles there were before.
    template <class Tensor, class Ring, class PageScales>
    IMBREX_KERNEL static void load_cache_tiles(warp& self, const Tensor& from, Ring& ring,
                                               const paged_kv_tile<block_n>& pages, bool scaled,
                                               const copy_scales& scales, PageScales& page_scales, unsigned loaded) {
        for (int number = 0, copy = 0; number < cache_tiles; ++number) {
            const auto slot = ring.acquire_to_write();
            for (int part = 0; scaled && part < parts; ++part) {
                put(self, page_scales[(loaded + number) % Kernel::cache_stages], part,
                    warp_broadcast(self, scales, copy + part * page_size_step / from.copied_rows));
            }
            slot.barrier().expect(self, sizeof(*slot));
            for (int row = 0; row < cache_tile_rows; row += from.copied_rows, ++copy) {
                const paged_seqlens::page_location at = warp_broadcast(self, pages.locations, copy);
                const auto rows = from.at(at.page, pages.head, at.row, 0);
                const bool none = at.row >= from.extents[2];
                load_rows_async(self, *slot, row, none ? rows.out_of_bounds_fill() : rows, slot);
            }
        }
    }

    template <class Queries>
    IMBREX_KERNEL static void load_queries(warp& self, const arguments& args, const work_tile& now, Queries& q) {
        const auto slot = q.acquire();
        for (int i = 0; i < Kernel::consumer_warpgroups; ++i) {
            const auto from = args.q.at(args.lengths.member(now.sequence.batch), now.sequence.head,
                                        now.first_row + i * Kernel::warpgroup_rows, 0);
            load_async(self, slot->group[i], from.out_of_bounds_fill(), slot);
        }
    }

    // Fills the consumers' stages. `Warps` warps take cache tiles in turn; each publishes every stage.
    template <int Warps, class CacheRing, class CacheTiles, class Ring, class Stages, class PageScales>
    IMBREX_KERNEL static void upconvert_tiles(warp& self, shared_memory& shared, CacheRing& cache_ring,
                                              CacheTiles& tiles, Ring& ring, Stages& stages,
                                              const kv_cache_scales& scales, const PageScales& page_scales, int turn) {
        auto landed = cache_ring.consumer(self, tiles);
        landed.skip(turn);
        auto filling = ring.producer(self, stages);
        auto work_tiles = shared.ring.work.read(self);
        unsigned passed = 0;  // cache tiles before this key tile
        unsigned next = turn;
        for (work_tile now = work_tiles.next(); now.exists(); now = work_tiles.next()) {
            if (!now.has_keys()) continue;
            for (int tile = now.tiles - 1; tile >= 0; --tile, passed += cache_tiles) {
                const int exist = now.sequence.seqlen_k - (now.first_tile + tile) * block_n;
                const auto slot = filling.acquire_to_write();
                for (; next < passed + cache_tiles; next += Warps) {
                    const int row = static_cast<int>(next - passed) * cache_tile_rows;
                    const auto cached = landed.wait();
                    if (scales.vary_by_page()) {
                        upconvert_parts(self, *slot, row, *cached, exist - row,
                                        page_scales[next % Kernel::cache_stages]);
                    } else {
                        upconvert(self, slot->template subtile<cache_tile_rows>(row), *cached, exist - row);
                    }
                    landed.skip(Warps - 1);
                }
                fence_async(self);
                filling.publish(slot);
            }
        }
    }

    // A cache tile with scales per page: sixteen keys are always in one page.
    template <class Stage, class CacheTile, class Scales>
    IMBREX_KERNEL static void upconvert_parts(warp& self, Stage& to, int row, const CacheTile& from, int exist,
                                              const Scales& scales) {
        for (int part = 0; part < parts; ++part) {
            const int first = part * page_size_step;
            upconvert(self, to.template subtile<page_size_step>(row + first),
                      from.template subtile<page_size_step>(first), exist - first, get(self, scales, part));
        }
    }
};

}  // namespace imbrex
