// Attention of a few new tokens of many sequences to keys and values in pages, where each multiprocessor has some heads of a
// sequence or more to read. Made for Hopper, as paged_decode/hopper.hpp is, of which it differs in who has what: a unit of work is
// one sequence for several heads of keys, and each of eight consumer warps has a head of its own, or shares one with others.
//
//     a unit has       stages, in their order: some keys of a head each
//     8 heads          | head 0 | head 1 | head 2 | .. | head 7 |            the same keys of all heads
//     2 heads          | head 0 | head 1 | head 0 | head 1 | ..              four warps share a head, with a quarter of its keys each
//     of warp            0        1        2        3
//
// So a sequence is one piece of work and not eight, or four and not eight, and the memory in which many warps put results together
// is the ring's. Those that share a head do so in the place of their queries. Products are turned round
// (paged_decode/attend_swap_ab.hpp). Where other blocks have parts of the same sequence, each warp leaves its own columns in global
// memory, and whoever comes last puts those of its head together.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/paged_decode/attend_swap_ab.hpp>
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
    int keys_per_stage;  // of a stage
    int stages;          // of each warp
    int kv_heads = 8;
    int warps_per_kv_head = 1;  // warps that have a head together
};

template <class In, int HeadDim, class Mask, class Score, multi_kv_head_shape Shape,
          attention_output_mode Result = attention_output_mode::normalised, class Cache = In>
struct paged_decode_multi_kv_head {
    static constexpr bool needs_hopper = true;
    static constexpr bool uses_pdl = true;
    static constexpr int kv_heads_per_item = Shape.kv_heads;
    static constexpr int warps_per_kv_head = Shape.warps_per_kv_head;
    static constexpr int count = kv_heads_per_item * warps_per_kv_head;  // of warps that attend
    static constexpr int warps = 4 + (count + 3) / 4 * 4;
    static constexpr int block_m = 8;  // of queries, as many as the products turned round have columns
    static constexpr int keys_per_stage = Shape.keys_per_stage;
    static constexpr int block_n = keys_per_stage * warps_per_kv_head;  // of a step
    static_assert(keys_per_stage % page_size_step == 0, "imbrex: a stage has a multiple of 16 keys");
    using key_tile = shared_tile<Cache, keys_per_stage, HeadDim>;
    using query_tile = shared_tile<In, decode_slice_rows, HeadDim>;
    using stage = decode_stage<key_tile>;
    // For each warp. Queries are in registers by the time that there are sums for those who share a head with it.
    using acc_tile = shared_tile<float, decode_slice_rows, HeadDim * block_m / decode_slice_rows>;
    struct warp_buffers {
        overlay<query_tile, acc_tile> queries_or_acc[count];
        shared_vector<float, decode_slice_rows> row_max[count];
        shared_vector<float, decode_slice_rows> row_sum[count];

        IMBREX_KERNEL query_tile& queries(int of) { return queries_or_acc[of].template as<query_tile>(); }
        IMBREX_KERNEL acc_tile& acc_o(int of) { return queries_or_acc[of].template as<acc_tile>(); }
    };

    using arguments = decode_tma_arguments<In, Mask, Score, key_tile>;
    using shared_memory = decode_tma_shared_memory<stage, count * Shape.stages, warp_buffers>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    // What blocks leave for one another is a result of each warp, as large as so many slices.
    template <int Kept>
    static constexpr int width_of = HeadDim* Kept / (decode_slice_rows * warps_per_kv_head);
    static constexpr int least_kept = width_of<4> % decode_slice_columns == 0 ? 4 : 8;
    static_assert(width_of<8> % decode_slice_columns == 0, "imbrex: so many warps cannot share columns of a head");
    static constexpr int partial_slices =
        static_cast<int>((count * sizeof(decode_workspace_slice_of<width_of<8>>) + sizeof(decode_workspace_slice) - 1) /
                         sizeof(decode_workspace_slice));
    struct consumers : decode_workspace<partial_slices> {
        static constexpr int slices_for(std::int64_t) { return partial_slices; }
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const auto produce = [&](warp& self, auto& splits, auto& stages) {
            decode_scheduler<block_m, block_n, Mask, kv_heads_per_item> scheduler(self, args.schedule, args.lengths,
                                                                                  args.mask, block.count().x);
            produce_splits<block_n>(
                self, block, args, scheduler, splits, [&](const tile_page_coords& coords, int first_head) {
                    for (int warp_in_head = 0, copy_idx = 0; warp_in_head < warps_per_kv_head; ++warp_in_head) {
                        const int first = copy_idx;
                        for (int head = 0; head < kv_heads_per_item; ++head) {
                            auto slot = stages.acquire();
                            copy_idx = load_from_pages(self, *slot, args, coords, first, first_head + head, slot);
                        }
                    }
                });
        };
        run_warp_specialised<count>(block, args, shared, 1, produce, [&](warp& self, auto& splits, auto& stages) {
            stages.skip(self.index());
            consume(self, args, shared.consumer_memory, splits, stages);
        });
    }

  private:
    IMBREX_KERNEL static int head_of(const warp& self) { return self.index() % kv_heads_per_item; }
    IMBREX_KERNEL static int warp_of_kv_head(const warp& self) { return self.index() / kv_heads_per_item; }

    static constexpr int query_tiles = HeadDim / 16;
    struct queries {
        warp_tile<In, decode_slice_rows, 16> tiles[query_tiles];
    };
    using result = decode_result<1, HeadDim>;

    template <class Splits, class Stages>
    IMBREX_KERNEL static void consume(warp& self, const arguments& args, warp_buffers& shared, Splits& splits,
                                      Stages& stages) {
        query_tile& q = shared.queries(self.index());
        decode_split now = for_own_kv_head(self, splits.next(), args);
        queries asked;
        issue_query_loads(self, asked, now, args);
        while (now.exists()) {
            result made;
            attend(self, args, now, asked, q, stages, made);
            // The next piece's queries come while this one's results are written.
            const decode_split next_split = for_own_kv_head(self, splits.next(), args);
            issue_query_loads(self, asked, next_split, args);
            if (now.sequence.seqlen_q * args.schedule.q_heads_per_kv_head.value - now.first_row <= 4) {
                finish<least_kept>(self, now, args, made, shared);
            } else {
                finish<8>(self, now, args, made, shared);
            }
            now = next_split;
        }
    }

    IMBREX_KERNEL static decode_split for_own_kv_head(const warp& self, const decode_split& split,
                                                      const arguments& args) {
        decode_split own = split;
        own.kv_head += head_of(self);
        own.sequence.head = own.kv_head * args.schedule.q_heads_per_kv_head.value;
        return own;
    }
    IMBREX_KERNEL static gqa_rows rows_of(const decode_split& now, const arguments& args) {
        return {now.sequence, args.schedule.q_heads_per_kv_head, now.first_row};
    }

    IMBREX_KERNEL static void issue_query_loads(warp& self, queries& to, const decode_split& of,
                                                const arguments& args) {
        const query_pointers places(args.q, args.lengths, of.sequence.batch, of.exists());
        static_for<query_tiles>([&](auto number) {
            load_decode_rows<decode_access::vec2>(self, to.tiles[number], places.of(rows_of(of, args), number * 16));
        });
    }

    template <class Stages>
    IMBREX_KERNEL static void attend(warp& self, const arguments& args, const decode_split& now, const queries& asked,
                                     query_tile& q, Stages& stages, result& made) {
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
        decode_attention_swap_ab<In, HeadDim, keys_per_stage, Cache, block_m> work(
            self, q, query_abs_max, scale_after(args.score, scales.qk_scale()));
        for (int tile_idx = 0; tile_idx < now.num_tiles; ++tile_idx) {
            const int first_key = (now.first_tile + tile_idx) * block_n + warp_of_kv_head(self) * keys_per_stage;
            const stage_kv_scales<keys_per_stage> of_pages = scales.of_pages(self, args, now, first_key);
            auto held = stages.wait();
            stages.skip(count - 1);
            if (warps_per_kv_head > 1 && first_key >= now.keys.end) continue;  // none is left for this warp
            // Behind the last key there may be anything, even NaN, which no weight of zero would silence.
            if (now.keys.end - first_key < keys_per_stage) {
                fill_rows(self, held->v, now.keys.end - first_key, convert<Cache>(0.0f));
                fence_async(self);
                self.sync();
            }
            work.attend(self, held, rows_of(now, args), first_key, now.keys.end, args.mask, args.score,
                        scales.qk_scale(), of_pages);
        }
        work.finish(self, made, scales.pv_scale());
        self.sync();  // queries have been read
    }

    struct stage_warps_barrier {
        static constexpr int count = kv_heads_per_item;  // for each head
    };
    IMBREX_KERNEL static void sync_stage_warps(const warp& self, source here = source::current()) {
        named_barriers<stage_warps_barrier>::template of<stage_warps_barrier>(head_of(self))
            .sync(self, warps_per_kv_head, here);
    }

    // What the warps that share a head have found out, of which each has some columns of all.
    template <int Kept>
    IMBREX_KERNEL static void merge_kv_head_warps(warp& self, decode_partial_slice_of<width_of<Kept>>& all,
                                                  const result& made, warp_buffers& shared) {
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
            sync_stage_warps(self);  // all has been read
        }
    }

    // The warp's columns of its head's rows, of which so many are kept: written; or left for whoever comes last of the blocks that
    // have parts of the unit, who puts them together in the order of the keys.
    template <int Kept>
    IMBREX_KERNEL static void finish(warp& self, const decode_split& now, const arguments& args, const result& made,
                                     warp_buffers& shared) {
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
                self, args.results, args.lengths, {rows_of(now, args), Kept, first_column + column, HeadDim}, one);
        });
    }
};

}  // namespace imbrex
