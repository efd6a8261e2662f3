// The consumer warps of the single-KV-head decode kernels (hopper.hpp with TMA, ampere.hpp with cp.async). Their
// interface is that of consumer_interface.hpp.
//
//   attend     Each K/V stage belongs to one warp, which multiplies it with 16 packed GQA rows by mma.sync. With more
//              rows, warps_m warps share the stage, 16 rows each.
//   merge      At the end of a split the warps merge their partial results (LSE merge) through shared memory, each warp
//              some columns. If the work item has other splits, the slices go to the workspace, and the last block to
//              arrive merges them; a block that has all splits merges them after its last one.
//
//     stage      0   1   2   3   4   5   6   7   8   9   10  ..
//     warp       0   1   2   3   4   5   6   7   0   1   2   ..     no two synchronise before the end of a split
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/attend_swap_ab.hpp>
#include <imbrex/kernels/paged_decode/consumer_interface.hpp>
#include <imbrex/kernels/paged_decode/kv_scaling.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/scheduler.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_block.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/permuted_tile.hpp>
#include <imbrex/ops/warp/stack_columns.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class In, int HeadDim, decode_shape Shape, attention_output_mode Result, class Cache = In>
struct decode_consumer : decode_workspace<Shape.warps_m * HeadDim / decode_slice_columns> {
    static_assert(sizeof(In) == 2, "imbrex: decode multiplies bf16 or fp16");
    static_assert(std::is_same_v<Cache, In> || upconverts_to<Cache, In>,
                  "imbrex: the cache has the type of the queries, or is e4m3 or int8");
    static constexpr int count = Shape.warps;
    static constexpr int warps_m = Shape.warps_m;
    static constexpr int slice = decode_slice_rows;
    static constexpr int block_m = warps_m * slice;
    static constexpr int block_n = Shape.block_n;
    static constexpr int warps_n = count / warps_m;  // stages go round robin to these
    static constexpr int rounds = HeadDim / Shape.merge_columns;
    static constexpr int slices = decode_workspace<warps_m * HeadDim / decode_slice_columns>::slices;
    static constexpr int query_tiles = warps_m * HeadDim / slice;  // of 16 columns, loaded cooperatively
    // swap-AB for few rows and 8-bit keys that TMA copies (paged_decode/attend_swap_ab.hpp).
    static constexpr bool swap_ab = sizeof(Cache) == 1 && warps_m == 1 && !Shape.uses_cp_async;
    using attention = decode_attention<In, HeadDim, block_n, Cache, block_m>;
    using result = typename attention::result;
    static_assert(decode_tile_attention<attention, result>, "imbrex: see paged_decode/consumer_interface.hpp");
    using scaling = decode_kv_scaling<std::conditional_t<swap_ab, mma_type_of<Cache>, In>, Cache, block_n, warps_n>;
    // Partial results that are loaded together: as many as fit the registers.
    static constexpr int at_once = Shape.uses_cp_async && HeadDim > 192 ? 1
                                   : rounds > 1                         ? 2
                                   : warps_m > 1 || HeadDim > 128       ? 4
                                   : Shape.uses_cp_async || swap_ab     ? 6
                                                                        : 8;
    static_assert(count % warps_m == 0 && Shape.stages % warps_n == 0,
                  "imbrex: stages must be a multiple of warps_n, and warps of warps_m (1, 2, 4 or 8)");
    static_assert(block_n % page_size_step == 0 && HeadDim % Shape.merge_columns == 0 &&
                      Shape.merge_columns % attention::acc_tile_width == 0,
                  "imbrex: block_n must be a multiple of 16, and merge_columns of the accumulator tile width");

    static constexpr decode_access access = Shape.uses_cp_async ? decode_access::scalar : decode_access::vec2;
    using query_buffer =
        std::conditional_t<swap_ab, swap_ab_queries<In, HeadDim, Cache>, shared_queries<In, block_m, HeadDim, Cache>>;
    using key_tile = typename attention::key_tile;
    using merge_tile = shared_tile<float, slice, Shape.merge_columns>;
    using stage = decode_stage<key_tile>;
    // Partial result of each warp.
    struct warp_partials {
        merge_tile acc_o[count];
        shared_vector<float, slice> row_max[count];
        shared_vector<float, slice> row_sum[count];
    };
    struct shared_memory {
        warp_partials partials;
        query_buffer q;  // of the current split
    };

    // Rows are packed as rows_kept says.
    static constexpr int slices_for(std::int64_t most_rows) {
        return warps_m > 1 || most_rows > 8 ? slices : most_rows > 4 ? slices / 2 : slices / 4;
    }

    template <class Arguments, class Memory, class Splits, class Stages>
    IMBREX_KERNEL static void run(warp& self, const Arguments& args, Memory& shared, Splits& splits, Stages& stages) {
        const int warp_n = warp_n_of(self);
        stages.skip(warp_n);
        int passed = 0;     // tiles of earlier splits
        int next = warp_n;  // next tile of this warp, counted over all splits
        decode_split now = splits.next();
        queries asked;
        if constexpr (!Shape.uses_cp_async) issue_query_loads(self, args, now, asked, self.index());
        while (now.exists()) {
            if constexpr (Shape.uses_cp_async) {
                // The stages' memory held partial results: wait until all warps have read them.
                sync_warps<partials_read>(self);
                stages.begin();
                for (int tile_idx = self.index(); tile_idx < query_tiles; tile_idx += count * queries::at_once) {
                    queries some;
                    issue_query_loads(self, args, now, some, tile_idx);
                    store_queries(self, shared.q, some, tile_idx);
                }
            } else {
                store_queries(self, shared.q, asked, self.index());
            }
            // Warps that share all stages synchronise at the first stage anyway.
            if constexpr (!Shape.uses_cp_async || warps_n > 1) sync_warps<queries_ready>(self);
            const int kept = rows_kept(args, now);
            const bool has_tiles = next < passed + now.num_tiles;
            result made;
            if constexpr (swap_ab) {
                attend_swap_ab(self, args, now, made, shared.q, stages, passed, next, kept);
            } else {
                scaling scales(args, now);
                const auto queries = [&] { return shared.q.rows_from(self, self.index() % warps_m * slice); };
                attention work(self, queries(), scale_after(args.score, scales.qk_scale()));
                const auto with = [&](auto& held, const gqa_rows& own, int first_key, const auto& of_pages) {
                    work.attend(self, queries(), held, own, first_key, now.keys.end, args.mask, args.score,
                                scales.qk_scale(), of_pages);
                };
                for_own_tiles(self, args, now, stages, scales, passed, next, with);
                work.finish(self, made, scales.pv_scale());
            }
            // Load the queries of the next split during the merge.
            const decode_split next_split = splits.next();
            if constexpr (!Shape.uses_cp_async) issue_query_loads(self, args, next_split, asked, self.index());
            const int contributing = now.num_tiles < warps_n ? now.num_tiles : warps_n;
            static_for<rounds>([&](auto round) {
                // In the first round queries_ready has already ordered this, unless stages and partials share memory.
                if constexpr (round > 0 || Shape.uses_cp_async) sync_warps<partials_read>(self);
                if (has_tiles) store_partial<round>(self, shared.partials, made, kept);
                sync_warps<partials_ready>(self);
                finish<round>(self, args, now, shared.partials, passed % warps_n, contributing, kept);
            });
            passed += now.num_tiles;
            now = next_split;
        }
    }

    // Barrier of the warps that share a stage.
    IMBREX_KERNEL static void sync_stage_warps(const warp& self, source here = source::current()) {
        if constexpr (warps_m == 1) {
            self.sync(here);
        } else {
            barriers::template of<stage_warps_barrier>(warp_n_of(self)).sync(self, warps_m, here);
        }
    }
    // Index among the warps_n groups that receive stages in turn.
    IMBREX_KERNEL static int warp_n_of(const warp& self) { return warps_n == 1 ? 0 : self.index() / warps_m; }

  private:
    struct queries_ready {};
    struct partials_ready {};
    struct partials_read {};
    struct stage_warps_barrier {
        static constexpr int count = warps_m == 1 ? 1 : warps_n;  // one barrier per group that shares a stage
    };
    using barriers = named_barriers<queries_ready, partials_ready, partials_read, stage_warps_barrier>;
    template <class Name>
    IMBREX_KERNEL static void sync_warps(const warp& self, source here = source::current()) {
        barriers::template of<Name>().sync(self, count, here);
    }

    template <class Arguments, class Stages>
    IMBREX_KERNEL static void attend_swap_ab(warp& self, const Arguments& args, const decode_split& now, result& made,
                                             const query_buffer& q, Stages& stages, int passed, int& next, int kept) {
        if (kept <= 8) {
            attend_swap_ab<8>(self, args, now, made, q, stages, passed, next);
        } else {
            attend_swap_ab<16>(self, args, now, made, q, stages, passed, next);
        }
    }
    template <int Queries, class Arguments, class Stages>
    IMBREX_KERNEL static void attend_swap_ab(warp& self, const Arguments& args, const decode_split& now, result& made,
                                             const query_buffer& q, Stages& stages, int passed, int& next) {
        using attention_swap_ab = decode_attention_swap_ab<In, HeadDim, block_n, Cache, Queries>;
        static_assert(decode_tile_attention<attention_swap_ab, result>,
                      "imbrex: see paged_decode/consumer_interface.hpp");
        scaling scales(args, now);
        const auto queries = q.rows_from(self, 0);
        attention_swap_ab work(self, queries, scale_after(args.score, scales.qk_scale()));
        const auto with = [&](auto& held, const gqa_rows& own, int first_key, const auto& of_pages) {
            work.attend(self, queries, held, own, first_key, now.keys.end, args.mask, args.score, scales.qk_scale(),
                        of_pages);
        };
        for_own_tiles(self, args, now, stages, scales, passed, next, with);
        work.finish(self, made, scales.pv_scale());
    }

    // Calls with(held, rows, first_key, page_scales) for this warp's tiles of a split; advances `next` past them.
    template <class Arguments, class Stages, class With>
    IMBREX_KERNEL static void for_own_tiles(warp& self, const Arguments& args, const decode_split& now, Stages& stages,
                                            scaling& scales, int passed, int& next, const With& with) {
        const gqa_rows own{now.sequence, args.schedule.q_heads_per_kv_head,
                           now.first_row + self.index() % warps_m * slice};
        for (; next < passed + now.num_tiles; next += warps_n) {
            const int first_key = (now.first_tile + next - passed) * block_n;
            const stage_kv_scales<block_n> of_pages = scales.of_pages(self, args, now, first_key);
            auto held = stages.wait();
            stages.skip(warps_n - 1);
            if constexpr (!Shape.uses_cp_async) {
                if (now.keys.end - first_key < block_n) clean(self, held->v, now.keys.end - first_key);
            }
            with(held, own, first_key, of_pages);
        }
    }

    // Each warp loads some of a split's query tiles for all warps: to registers, then to shared memory once the
    // previous queries have been read. With cp.async kernels both steps follow directly, at most 4 tiles at a time to
    // limit registers.
    struct queries {
        static constexpr int of_warp = (query_tiles + count - 1) / count;
        static constexpr int at_once = Shape.uses_cp_async && of_warp > 4 ? 4 : of_warp;
        warp_tile<In, slice, slice> tiles[at_once];
    };
    // From tile `first` on, which is this warp's.
    template <class Function>
    IMBREX_KERNEL static void for_each_query_tile(int first, const Function& function) {
        static_for<queries::at_once>([&](auto number) {
            const int i = first + number * count;
            // The bounds check costs instructions and is skipped if all warps have equally many; with cp.async it saves
            // registers.
            constexpr bool evenly = !Shape.uses_cp_async && query_tiles % count == 0;
            if (evenly || i < query_tiles) function(number, i % warps_m * slice, i / warps_m * slice);
        });
    }
    template <class Arguments>
    IMBREX_KERNEL static void issue_query_loads(warp& self, const Arguments& args, const decode_split& of, queries& to,
                                                int first) {
        const query_pointers places(args.q, args.lengths, of.sequence.batch, of.exists());
        for_each_query_tile(first, [&](auto number, int row, int column) {
            const gqa_rows some{of.sequence, args.schedule.q_heads_per_kv_head, of.first_row + row};
            load_decode_rows<access>(self, to.tiles[number], places.of(some, column));
        });
    }
    IMBREX_KERNEL static void store_queries(warp& self, query_buffer& to, const queries& from, int first) {
        for_each_query_tile(first,
                            [&](auto number, int row, int column) { to.store(self, from.tiles[number], row, column); });
    }

    // Rows past the last key may hold anything, even NaN, and 0 * NaN is NaN: zero their values.
    IMBREX_KERNEL static void clean(warp& self, key_tile& values, int exist) {
        if (self.index() % warps_m == 0) {
            fill_rows(self, values, exist, convert<Cache>(0.0f));
            fence_async(self);
        }
        sync_stage_warps(self);
    }

    // Rows of a 16-row tile that are kept: 4, 8 or 16. Fewer rows are packed into fewer columns (stack_columns).
    template <class Arguments>
    IMBREX_KERNEL static int rows_kept(const Arguments& args, const decode_split& now) {
        const int exist = now.sequence.seqlen_q * args.schedule.q_heads_per_kv_head.value - now.first_row;
        return warps_m > 1 || exist > 8 ? 16 : exist > 4 ? 8 : 4;
    }

    // Stores some columns of a warp's partial result to shared memory.
    template <int Round>
    IMBREX_KERNEL static void store_partial(warp& self, warp_partials& to, const result& made, int kept) {
        if (kept == 4) {
            store_partial_packed<Round, 4>(self, to, made);
        } else if (kept == 8) {
            store_partial_packed<Round, 8>(self, to, made);
        } else {
            store_partial_packed<Round, 16>(self, to, made);
        }
    }
    template <int Round, int Kept>
    IMBREX_KERNEL static void store_partial_packed(warp& self, warp_partials& to, const result& made) {
        const int own = self.index();
        constexpr int acc_tiles = Shape.merge_columns / attention::acc_tile_width;
        constexpr int width = attention::acc_tile_width * Kept / slice;
        static_for<acc_tiles>([&](auto tile_idx) {
            store(self, to.acc_o[own].template subtile<slice, width>(0, tile_idx * width),
                  stack_columns<Kept>(self, made.acc_o[Round * acc_tiles + tile_idx]));
        });
        store(self, to.row_max[own], stack_columns<Kept>(self, made.row_max));
        store(self, to.row_sum[own], stack_columns<Kept>(self, made.row_sum));
    }

    // This warp's output slices: merges the contributing warps, from `first` on, and writes the result; or stores it in
    // the workspace for the last block to arrive. A warp has the same slices in every block, so one counter serves all
    // of them.
    template <int Round, class Arguments>
    IMBREX_KERNEL static void finish(warp& self, const Arguments& args, const decode_split& now,
                                     const warp_partials& partials, int first, int contributing, int kept) {
        constexpr int width = decode_slice_columns;
        const int packed_width = attention::acc_tile_width * kept / slice;
        const int in_round = Shape.merge_columns * kept / (slice * width);
        // Rows are never packed with warps_m > 1, so that the divisors are compile-time constants.
        constexpr int of_group = Shape.merge_columns / width;
        const auto group_of = [](int i) { return warps_m == 1 ? 0 : i / of_group; };
        const auto column_of = [](int i) { return (warps_m == 1 ? i : i % of_group) * width; };
        const int first_slice = Round * warps_m * in_round;
        const int there = row_groups_present(args, now) * in_round;
        const auto merge_warps = [&](int i, decode_partial_slice& all) {
            clear(self, all);
            merge_slices<at_once>(self, all, contributing, [&](int number, decode_partial_slice& one) {
                const int from = (first + number) % warps_n * warps_m + group_of(i);
                load(self, one.acc_o, partials.acc_o[from].template subtile<slice, width>(0, column_of(i)));
                load(self, one.row_max, partials.row_max[from]);
                load(self, one.row_sum, partials.row_sum[from]);
            });
        };
        if (self.index() >= there) return;
        if (now.num_splits > 1) {
            for (int i = self.index(); i < there; i += count) {
                decode_partial_slice all;
                merge_warps(i, all);
                slot_of(args, now, now.split_idx, first_slice + i)->store_from(self, all);
            }
            if (now.blocks == 1 && now.split_idx < now.num_splits - 1) return;
        }
        if (now.blocks > 1) {
            int* const counter = args.counters + std::int64_t{now.first_block} * slices + first_slice + self.index();
            if (!is_last_to_arrive(self, counter, now.num_splits)) return;
        }
        for (int i = self.index(); i < there; i += count) {
            decode_partial_slice all;
            if (now.num_splits > 1) {
                // In the order of the keys: deterministic.
                clear(self, all);
                merge_slices<at_once>(self, all, now.num_splits, [&](int split, decode_partial_slice& one) {
                    slot_of(args, now, split, first_slice + i)->load_to(self, one);
                });
            } else {
                merge_warps(i, all);
            }
            const gqa_rows own{now.sequence, args.schedule.q_heads_per_kv_head, now.first_row + group_of(i) * slice};
            // Columns of an accumulator tile are contiguous, also with packed rows.
            const int in_acc_tile = column_of(i) & (packed_width - 1);
            const int acc_tile_begin = (column_of(i) - in_acc_tile) << (kept == 4 ? 2 : kept == 8 ? 1 : 0);
            const int first_column = Round * Shape.merge_columns + acc_tile_begin + in_acc_tile;
            store_output_slice<Result, access>(self, args.results, args.lengths,
                                               {own, kept, first_column, attention::acc_tile_width}, all);
        }
    }

    // 16-row groups that have any rows.
    template <class Arguments>
    IMBREX_KERNEL static int row_groups_present(const Arguments& args, const decode_split& now) {
        const int exist = now.sequence.seqlen_q * args.schedule.q_heads_per_kv_head.value - now.first_row;
        return warps_m == 1 || exist <= slice ? 1 : exist < block_m ? (exist + slice - 1) / slice : warps_m;
    }

    // Workspace slice of a split.
    template <class Arguments>
    IMBREX_KERNEL static decode_workspace_slice* slot_of(const Arguments& args, const decode_split& now, int split,
                                                         int number) {
        return args.partials + std::int64_t{now.slot(split)} * args.schedule.slices_per_split + number;
    }
};

}  // namespace imbrex
