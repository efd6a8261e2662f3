// Decode kernel for many sequences: a work item is one sequence for several KV heads (8, 4 or 2). For Hopper. It
// differs from paged_decode/hopper.hpp in the assignment of stages: each of the eight consumer warps has its own KV
// head, or shares one with others.
//
//     KV heads         stages of a tile, in order
//     8                | head 0 | head 1 | head 2 | .. | head 7 |            the same keys of all heads
//     2                | head 0 | head 1 | head 0 | head 1 | ..       four warps per head, each a quarter of the keys
//     consumer warp      0        1        2        3
//
// A sequence is then one work item instead of eight, and the warps need no merge buffers, whose memory goes to the
// ring. Warps that share a head merge in the memory of their queries. Products use swap-AB
// (paged_decode/attend_swap_ab.hpp). If other blocks have splits of the same sequence, each warp stores its partial
// result in the workspace, and the last block to arrive does the LSE merge.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/attend_swap_ab.hpp>
#include <imbrex/kernels/paged_decode/consumer_interface.hpp>
#include <imbrex/kernels/paged_decode/kv_scaling.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/producer.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_block.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/stack_columns.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct multi_kv_head_shape {
    int keys_per_stage;
    int stages;  // of each warp
    int kv_heads = 8;
    int warps_per_kv_head = 1;
};

// The partial result of a split: one per warp, in this many workspace slices.
template <int HeadDim, multi_kv_head_shape Shape>
struct multi_kv_head_partials {
    static constexpr int count = Shape.kv_heads * Shape.warps_per_kv_head;  // consumer warps
    template <int Kept>
    static constexpr int width_of = HeadDim* Kept / (decode_slice_rows * Shape.warps_per_kv_head);
    static_assert(width_of<8> % decode_slice_columns == 0,
                  "imbrex: HeadDim cannot be divided among warps_per_kv_head warps");
    static constexpr int slices =
        static_cast<int>((count * sizeof(decode_workspace_slice_of<width_of<8>>) + sizeof(decode_workspace_slice) - 1) /
                         sizeof(decode_workspace_slice));
};

template <class In, int HeadDim, multi_kv_head_shape Shape, attention_output_mode Result, class Cache>
struct multi_kv_head_consumer : decode_workspace<multi_kv_head_partials<HeadDim, Shape>::slices> {
    static constexpr int kv_heads_per_item = Shape.kv_heads;
    static constexpr int warps_per_kv_head = Shape.warps_per_kv_head;
    static constexpr int count = kv_heads_per_item * warps_per_kv_head;
    static constexpr int block_m = 8;  // query rows: the columns of swap-AB products
    static constexpr int keys_per_stage = Shape.keys_per_stage;
    static constexpr int block_n = keys_per_stage * warps_per_kv_head;  // keys of a tile
    static_assert(keys_per_stage % page_size_step == 0, "imbrex: keys_per_stage must be a multiple of 16");
    using attention = decode_attention_swap_ab<In, HeadDim, keys_per_stage, Cache, block_m>;
    using result = decode_result<1, HeadDim>;
    using key_tile = shared_tile<Cache, keys_per_stage, HeadDim>;
    using query_tile = shared_tile<In, decode_slice_rows, HeadDim>;
    using stage = decode_stage<key_tile>;
    // Per warp. The queries are in registers by the time the warps of a head merge.
    using acc_tile = shared_tile<float, decode_slice_rows, HeadDim * block_m / decode_slice_rows>;
    struct shared_memory {
        overlay<query_tile, acc_tile> queries_or_acc[count];
        shared_vector<float, decode_slice_rows> row_max[count];
        shared_vector<float, decode_slice_rows> row_sum[count];

        IMBREX_KERNEL query_tile& queries(int of) { return queries_or_acc[of].template as<query_tile>(); }
        IMBREX_KERNEL acc_tile& acc_o(int of) { return queries_or_acc[of].template as<acc_tile>(); }
    };

    static constexpr int slices_for(std::int64_t) { return multi_kv_head_partials<HeadDim, Shape>::slices; }

    template <class Arguments, class Splits, class Stages>
    IMBREX_KERNEL static void run(warp& self, const Arguments& args, shared_memory& shared, Splits& splits,
                                  Stages& stages) {
        stages.skip(self.index());
        query_tile& q = shared.queries(self.index());
        decode_split now = for_own_kv_head(self, args, splits.next());
        queries asked;
        issue_query_loads(self, args, now, asked);
        while (now.exists()) {
            result made;
            attend(self, args, now, made, q, asked, stages);
            // Load the queries of the next split while this result is written.
            const decode_split next_split = for_own_kv_head(self, args, splits.next());
            issue_query_loads(self, args, next_split, asked);
            if (now.sequence.seqlen_q * args.schedule.q_heads_per_kv_head.value - now.first_row <= 4) {
                finish<least_kept>(self, args, now, made, shared);
            } else {
                finish<8>(self, args, now, made, shared);
            }
            now = next_split;
        }
    }

  private:
    template <int Kept>
    static constexpr int width_of = multi_kv_head_partials<HeadDim, Shape>::template width_of<Kept>;
    static constexpr int least_kept = width_of<4> % decode_slice_columns == 0 ? 4 : 8;

    IMBREX_KERNEL static int head_of(const warp& self) { return self.index() % kv_heads_per_item; }
    IMBREX_KERNEL static int warp_of_kv_head(const warp& self) { return self.index() / kv_heads_per_item; }

    static constexpr int query_tiles = HeadDim / 16;
    struct queries {
        warp_tile<In, decode_slice_rows, 16> tiles[query_tiles];
    };

    template <class Arguments>
    IMBREX_KERNEL static decode_split for_own_kv_head(const warp& self, const Arguments& args,
                                                      const decode_split& split) {
        decode_split own = split;
        own.kv_head += head_of(self);
        own.sequence.head = own.kv_head * args.schedule.q_heads_per_kv_head.value;
        return own;
    }
    template <class Arguments>
    IMBREX_KERNEL static gqa_rows rows_of(const Arguments& args, const decode_split& now) {
        return {now.sequence, args.schedule.q_heads_per_kv_head, now.first_row};
    }

    template <class Arguments>
    IMBREX_KERNEL static void issue_query_loads(warp& self, const Arguments& args, const decode_split& of,
                                                queries& to) {
        const query_pointers places(args.q, args.lengths, of.sequence.batch, of.exists());
        static_for<query_tiles>([&](auto number) {
            load_decode_rows<decode_access::vec2>(self, to.tiles[number], places.of(rows_of(args, of), number * 16));
        });
    }

    template <class Arguments, class Stages>
    IMBREX_KERNEL static void attend(warp& self, const Arguments& args, const decode_split& now, result& made,
                                     query_tile& q, const queries& asked, Stages& stages) {
        static_assert(decode_tile_attention<attention, result>, "imbrex: see paged_decode/consumer_interface.hpp");
        decode_partial_slice::values query_abs_max;
        fill(self, query_abs_max, 0.0f);
        static_for<query_tiles>([&](auto number) {
            store(self, q.template subtile<decode_slice_rows, 16>(0, number * 16),
                  permute_pairs_for<Cache>(self, asked.tiles[number]));
            if constexpr (swap_ab_queries<In, HeadDim, Cache>::fitted) {
                combine(self, query_abs_max, row_abs_max(self, asked.tiles[number]), functional::maximum{});
            }
        });
        self.sync();
        decode_kv_scaling<mma_type_of<Cache>, Cache, keys_per_stage, warps_per_kv_head> scales(args, now);
        const typename attention::query_rows queries{q, query_abs_max};
        attention work(self, queries, scale_after(args.score, scales.qk_scale()));
        for (int tile_idx = 0; tile_idx < now.num_tiles; ++tile_idx) {
            const int first_key = (now.first_tile + tile_idx) * block_n + warp_of_kv_head(self) * keys_per_stage;
            const stage_kv_scales<keys_per_stage> of_pages = scales.of_pages(self, args, now, first_key);
            auto held = stages.wait();
            stages.skip(count - 1);
            if (warps_per_kv_head > 1 && first_key >= now.keys.end) continue;  // no keys for this warp
            // Rows past the last key may hold anything, even NaN, and 0 * NaN is NaN: zero their values.
            if (now.keys.end - first_key < keys_per_stage) {
                fill_rows(self, held->v, now.keys.end - first_key, convert<Cache>(0.0f));
                fence_async(self);
                self.sync();
            }
            work.attend(self, queries, held, rows_of(args, now), first_key, now.keys.end, args.mask, args.score,
                        scales.qk_scale(), of_pages);
        }
        work.finish(self, made, scales.pv_scale());
        self.sync();  // the queries have been read
    }

    struct stage_warps_barrier {
        static constexpr int count = kv_heads_per_item;  // one barrier per KV head
    };
    IMBREX_KERNEL static void sync_stage_warps(const warp& self, source here = source::current()) {
        named_barriers<stage_warps_barrier>::template of<stage_warps_barrier>(head_of(self))
            .sync(self, warps_per_kv_head, here);
    }

    // Merges the warps of a KV head; each gets some columns.
    template <int Kept>
    IMBREX_KERNEL static void merge_kv_head_warps(warp& self, decode_partial_slice_of<width_of<Kept>>& all,
                                                  const result& made, shared_memory& shared) {
        const auto acc_o = stack_columns<Kept>(self, made.acc_o[0]);
        const auto row_max = stack_columns<Kept>(self, made.row_max), row_sum = stack_columns<Kept>(self, made.row_sum);
        if constexpr (warps_per_kv_head == 1) {
            all = {acc_o, row_max, row_sum};
        } else {
            constexpr int width = width_of<Kept>;
            const int own = self.index();
            store(self, shared.acc_o(own).template subtile<decode_slice_rows, warps_per_kv_head * width>(0), acc_o);
            store(self, shared.row_max[own], row_max);
            store(self, shared.row_sum[own], row_sum);
            sync_stage_warps(self);
            clear(self, all);
            merge_slices<warps_per_kv_head>(self, all, warps_per_kv_head,
                                            [&](int number, decode_partial_slice_of<width>& one) {
                                                const int from = number * kv_heads_per_item + head_of(self);
                                                load(self, one.acc_o,
                                                     shared.acc_o(from).template subtile<decode_slice_rows, width>(
                                                         0, warp_of_kv_head(self) * width));
                                                load(self, one.row_max, shared.row_max[from]);
                                                load(self, one.row_sum, shared.row_sum[from]);
                                            });
            sync_stage_warps(self);  // all partials have been read
        }
    }

    // This warp's columns: writes them, or stores them in the workspace; the last block to arrive merges the splits in
    // the order of the keys.
    template <int Kept, class Arguments>
    IMBREX_KERNEL static void finish(warp& self, const Arguments& args, const decode_split& now, const result& made,
                                     shared_memory& shared) {
        constexpr int width = width_of<Kept>;
        decode_partial_slice_of<width> all;
        merge_kv_head_warps<Kept>(self, all, made, shared);
        if (now.num_splits > 1) {
            const auto slot_of = [&](int split) {
                decode_workspace_slice* const slot =
                    args.partials + std::int64_t{now.slot(split)} * args.schedule.slices_per_split;
                return reinterpret_cast<decode_workspace_slice_of<width>*>(slot) + self.index();
            };
            slot_of(now.split_idx)->store_from(self, all);
            int* const counter = args.counters + std::int64_t{now.first_block} * count + self.index();
            if (!is_last_to_arrive(self, counter, now.num_splits)) return;
            clear(self, all);
            merge_slices<Kept == 4 ? 4 : 2>(
                self, all, now.num_splits,
                [&](int split, decode_partial_slice_of<width>& one) { slot_of(split)->load_to(self, one); });
        }
        const int first_column = warp_of_kv_head(self) * width;
        static_for<width / decode_slice_columns>([&](auto number) {
            constexpr int column = number * decode_slice_columns;
            decode_partial_slice one{hw::columns_of<column, decode_slice_columns>(self, all.acc_o, source::current()),
                                     all.row_max, all.row_sum};
            store_output_slice<Result, decode_access::vec2>(
                self, args.results, args.lengths, {rows_of(args, now), Kept, first_column + column, HeadDim}, one);
        });
    }
};

template <class In, int HeadDim, class Mask, class Score, multi_kv_head_shape Shape,
          attention_output_mode Result = attention_output_mode::normalised, class Cache = In>
struct paged_decode_multi_kv_head {
    using consumers = multi_kv_head_consumer<In, HeadDim, Shape, Result, Cache>;
    static_assert(decode_split_consumer<consumers>, "imbrex: see paged_decode/consumer_interface.hpp");
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int kv_heads_per_item = consumers::kv_heads_per_item;
    static constexpr int warps = 4 + (consumers::count + 3) / 4 * 4;
    static constexpr int block_m = consumers::block_m;
    static constexpr int block_n = consumers::block_n;
    using key_tile = typename consumers::key_tile;
    using stage = typename consumers::stage;

    using arguments = decode_tma_arguments<In, Mask, Score, key_tile>;
    using shared_memory =
        decode_tma_shared_memory<stage, consumers::count * Shape.stages, typename consumers::shared_memory>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: the ring of stages exceeds shared memory");

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const auto produce = [&](warp& self, auto& splits, auto& stages) {
            decode_scheduler<block_m, block_n, Mask, kv_heads_per_item> scheduler(self, args.schedule, args.lengths,
                                                                                  args.mask, block.count().x);
            produce_splits<block_n>(
                self, block, args, scheduler, splits, [&](const tile_page_coords& coords, int first_head) {
                    for (int warp_in_head = 0, copy_idx = 0; warp_in_head < Shape.warps_per_kv_head; ++warp_in_head) {
                        const int first = copy_idx;
                        for (int head = 0; head < kv_heads_per_item; ++head) {
                            auto slot = stages.acquire();
                            copy_idx = load_from_pages(self, *slot, args, coords, first, first_head + head, slot);
                        }
                    }
                });
        };
        run_warp_specialised<consumers::count>(block, args, shared, 1, produce,
                                               [&](warp& self, auto& splits, auto& stages) {
                                                   consumers::run(self, args, shared.consumer_memory, splits, stages);
                                               });
    }
};

}  // namespace imbrex
