// Producer of the 8-bit attention kernel: four warps that run ahead of the consumers. Warp 0 runs the tile scheduler,
// as in attention/producer.hpp; warp 1 loads K, Q and their scales; warps 2 and 3 bring V into the order that P has in
// the consumers' registers (ops/warpgroup/accumulator_order.hpp):
//
//   fp8_v_layout::row_major   each loads half of the keys of every tile into a tile of its own and transposes it
//   fp8_v_layout::k_major     each loads every other tile and reorders it in place; not for paged KV
//
// Keys behind the last one become zero on the way: they may hold anything, even NaN, and 0 * NaN is NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/producer.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>
#include <imbrex/kernels/attention_fp8/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/tile/pipeline.hpp>

namespace imbrex {

template <class Kernel>
class attention_fp8_producer : attention_producer<Kernel> {
    using base = attention_producer<Kernel>;
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using scaling = typename Kernel::scaling;
    using work_tile = attention_work_tile;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int consumer_warpgroups = Kernel::consumer_warpgroups;
    static constexpr int warpgroup_rows = Kernel::warpgroup_rows;

  public:
    template <class Block>
    IMBREX_KERNEL static void run(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        if (self.index() == 0) {
            base::plan(self, block, args, shared);
        } else if (self.index() == 1) {
            feed_keys(self, args, shared);
        } else if constexpr (Kernel::v_layout == fp8_v_layout::row_major) {
            transpose_values(self, args, shared, self.index() - 2);
        } else {
            reorder_values(self, args, shared, self.index() - 2);
        }
    }

  private:
    static constexpr bool scales_by_block = scaling::kv_block != 0;

    // `score`: of the scores, with the scale of Q only if that is one for all rows.
    struct tile_scales {
        float score;
        float v;
    };
    IMBREX_KERNEL static tile_scales scales_of(const arguments& args, const work_tile& now, int kv_head, int key) {
        const int batch = now.sequence.batch;
        if constexpr (fp8_scales_by_page<scaling>()) {
            const int page = args.lengths.locate(now, key, block_n).page;  // of the whole tile
            return {args.scale * descale_of_row<scaling>(args.k_descale, 0, page, kv_head, 0),
                    descale_of_row<scaling>(args.v_descale, 0, page, kv_head, 0)};
        }
        const float k = args.scale * descale_of_row<scaling>(args.k_descale, scaling::kv_block, batch, kv_head, key);
        if constexpr (scales_by_block) {
            return {k, descale_of_row<scaling>(args.v_descale, scaling::kv_block, batch, kv_head, key)};
        } else {
            return {k * descale_of_row<scaling>(args.q_descale, 0, batch, now.sequence.head, 0), 1.0f};
        }
    }

    IMBREX_KERNEL static void feed_keys(warp& self, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(self, args.q);
        prefetch_descriptor(self, args.k);
        auto q = shared.ring.q.producer(self, shared.queries);
        auto k = shared.ring.k.producer(self, shared.keys);
        base::for_each_tile(self, args, shared, [&](const work_tile& now, int tile, const auto& at) {
            const tile_scales scales = scales_of(args, now, at.head, (now.first_tile + tile) * block_n);
            const auto keys = k.acquire_to_write();
            put(self, keys->descale, 0, scales.score);
            if constexpr (scales_by_block) put(self, keys->descale, 1, scales.v);
            keys.barrier().expect(self, Kernel::k_stage::bytes);
            at.load_into(self, keys->tile, args.k, keys);
            if (tile == now.tiles - 1) feed_queries(self, args, now, q);
        });
    }

    // Q after the first K: its stage is released later.
    template <class Queries>
    IMBREX_KERNEL static void feed_queries(warp& self, const arguments& args, const work_tile& now, Queries& q) {
        const int batch = now.sequence.batch, head = now.sequence.head;
        const auto slot = q.acquire_to_write();
        for (int i = 0; scales_by_block && i < consumer_warpgroups; ++i) {
            const int query = now.queries.first + i * warpgroup_rows;
            const bool exists = query < now.queries.end;  // Behind the last query there may be no scale.
            put(self, slot->descale, i,
                exists ? descale_of_row<scaling>(args.q_descale, scaling::q_block, batch, head, query) : 1.0f);
        }
        slot.barrier().expect(self, Kernel::q_stage::bytes);
        for (int i = 0; i < consumer_warpgroups; ++i) {
            const auto from = args.q.at(args.lengths.member(batch), head, now.first_row + i * warpgroup_rows, 0);
            load_async(self, slot->group[i], from.out_of_bounds_fill(), slot);
        }
    }

    IMBREX_KERNEL static void transpose_values(warp& self, const arguments& args, shared_memory& shared, int part) {
        prefetch_descriptor(self, args.v);
        constexpr int keys = Kernel::raw_v_tile::rows;
        auto& staging = shared.ring.raw_v[part];
        auto raw = staging.producer(self, shared.raw_values[part]);
        auto landed = staging.consumer(self, shared.raw_values[part]);
        auto v = shared.ring.v.producer(self, shared.values);
        base::for_each_tile_row(self, args, shared, [&](const work_tile& now, int tile, int kv_head, int row) {
            const int exist = now.sequence.seqlen_k - (now.first_tile + tile) * block_n;
            const auto at = kv_tile<keys>(self, args.lengths, now, kv_head, row + part * keys, args.v.copied_rows);
            const auto loading = raw.acquire();
            at.load_into(self, *loading, args.v, loading, true);
            const auto ready = landed.wait();
            const auto slot = v.acquire_to_write();
            transpose(self, *slot, part * keys, *ready, exist - part * keys);
            fence_async(self);
            v.publish(slot);
        });
    }

    IMBREX_KERNEL static void reorder_values(warp& self, const arguments& args, shared_memory& shared, int part) {
        prefetch_descriptor(self, args.v);
        auto v = shared.ring.v.producer(self, shared.values);
        unsigned number = 0;
        base::for_each_tile_row(self, args, shared, [&](const work_tile& now, int tile, int kv_head, int row) {
            const unsigned turn = number++;
            if (turn % 2 != static_cast<unsigned>(part)) return v.skip();
            const int exist = now.sequence.seqlen_k - (now.first_tile + tile) * block_n;
            const auto slot = v.acquire_for_transform(shared.ring.landed[part]);
            load_async(self, slot->tile, args.v.at(args.lengths.member(now.sequence.batch), kv_head, 0, row), slot);
            shared.ring.landed[part].wait_converged(self, turn / 2);
            reorder(self, *slot, exist);
            fence_async(self);
            v.publish(slot);
        });
    }
};

}  // namespace imbrex
