// Decode kernel for few and short sequences, where latency dominates and not memory bandwidth. For Hopper: each work
// item (the packed GQA rows of one KV head of one sequence) has a thread block cluster of eight blocks, and splits are
// merged through DSMEM.
//
//   attend      Each warp has every 32nd stage and copies it by cp.async; with PDL before the preceding kernel has
//               finished, if that kernel writes only the new tokens' keys. Each warp loads its queries itself.
//   merge       The warps of a block merge (LSE merge) through shared memory, the blocks of the cluster through DSMEM.
//               There are no partial results in global memory and no arrival counters.
//
//     stage      0   1   2   ..   7   8   9   ..
//     block      0   1   2   ..   7   0   1   ..
//     warp       0   0   0   ..   0   1   1   ..
//
// Masked tiles are not read. Keys that are not read, and rows past the last key, become zero.
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/consumer_interface.hpp>
#include <imbrex/kernels/paged_decode/merge_splits.hpp>
#include <imbrex/kernels/paged_decode/pack_gqa.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class In, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          attention_output_mode Result = attention_output_mode::normalised>
struct paged_decode_cluster {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_90a;
    static constexpr bool uses_pdl = true;
    static constexpr int cluster = 8;
    static constexpr int warps = 4;  // few registers per block: blocks of other kernels fit beside it
    static constexpr int block_m = decode_slice_rows;
    static constexpr int block_n = HeadDim > 128 ? 16 : 32;  // keys of a stage
    static constexpr int ahead = HeadDim > 64 ? 1 : 2;       // stages in flight per warp
    static constexpr int slices = HeadDim / decode_slice_columns;
    using attention = decode_attention<In, HeadDim, block_n>;
    static_assert(decode_tile_attention<attention, typename attention::result>,
                  "imbrex: see paged_decode/consumer_interface.hpp");
    using key_tile = typename attention::key_tile;

    // The views may have fewer columns than HeadDim; the rest is zero. Rows of K and V are aligned to 16 bytes.
    struct arguments : decode_arguments<In, Mask, Score> {
        attention_view<const In> k;
        attention_view<const In> v;
        bool pdl_prefetch;  // PDL: read all but the new tokens' keys before the preceding kernel ends
    };
    using query_tile = shared_tile<In, block_m, HeadDim>;
    using stage = decode_stage<key_tile>;
    struct warp_inputs {
        stage keys[ahead];
        query_tile q;
    };
    // Overlaid on the stages.
    struct warp_partial {
        shared_tile<float, block_m, HeadDim> acc_o;
        shared_vector<float, block_m> row_max;
        shared_vector<float, block_m> row_sum;
    };
    // Partial result of a block, for the rest of its cluster. row_max and row_sum are repeated in all columns of their
    // tiles.
    struct block_partial {
        shared_tile<float, block_m, HeadDim> acc_o;
        shared_tile<float, block_m, 2 * decode_slice_columns> row_max_and_sum;
    };
    struct shared_memory {
        overlay<warp_inputs, warp_partial> warp_memory[warps];
        block_partial partial;
    };

    // One cluster per work item.
    static constexpr int blocks_of(int batches, int kv_heads) { return batches * kv_heads * cluster; }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if (!args.pdl_prefetch) pdl_wait(block);
        pdl_launch_dependents(block);
        const int number = block.index().x / cluster, rank = block.cluster_rank();
        work_item now(number, args);
        do {
            block.each_warp([&](warp& self) { attend(self, args, now, shared.warp_memory[self.index()], rank); });
            block.sync();
            block.each_warp([&](warp& self) { merge_warps(self, now, shared, rank); });
            block.cluster_sync();
            block.each_warp([&](warp& self) { merge_blocks(self, args, now, shared, rank); });
            block.cluster_sync();  // no block exits while another reads its shared memory
            now.first_row += block_m;
        } while (now.first_row < now.all_rows);
    }

  private:
    // One KV head of a sequence, 16 packed rows at a time; mostly there are no more.
    struct work_item : attention_work {
        int kv_head;
        int first_row = 0;
        int all_rows;
        int first_stage, stages;

        IMBREX_KERNEL work_item(int number, const arguments& args) {
            const int kv_heads = args.schedule.kv_heads, heads = args.schedule.q_heads_per_kv_head.value;
            const int batch = number / kv_heads;
            kv_head = number - batch * kv_heads;
            sequence = args.lengths.of(batch, kv_head * heads);
            queries = {0, sequence.seqlen_q};
            keys = visible_keys_of_heads(sequence, heads, queries, args.mask);
            all_rows = sequence.seqlen_q * heads;
            first_stage = keys.first / block_n;
            stages = all_rows == 0 ? 0 : (keys.end + block_n - 1) / block_n - first_stage;
        }

        // Warps of this block that have keys.
        IMBREX_KERNEL int active_warps(int rank) const {
            const int own = (stages - rank + cluster - 1) / cluster;
            return own < warps ? own : warps;
        }
    };

    IMBREX_KERNEL static void attend(warp& self, const arguments& args, const work_item& now,
                                     overlay<warp_inputs, warp_partial>& memory, int rank) {
        warp_inputs& held = memory.template as<warp_inputs>();
        // This warp's stages are numbered from 0.
        const int first = rank + cluster * self.index();
        const auto exists = [&](int i) { return first + i * cluster * warps < now.stages; };
        const auto key_of = [&](int i) { return (now.first_stage + first + i * cluster * warps) * block_n; };
        int asked = 0;
        const auto ask = [&] {
            if (exists(asked)) fetch(self, args, now, held.keys[asked % ahead], key_of(asked));
            commit_copies(self);
            ++asked;
        };
        while (asked < ahead && key_of(asked) + block_n <= now.sequence.offset()) ask();
        if (args.pdl_prefetch) pdl_wait(self);
        if (!exists(0)) return;
        while (asked < ahead) ask();
        const gqa_rows own{now.sequence, args.schedule.q_heads_per_kv_head, now.first_row};
        fetch_queries(self, args, own, held.q);
        const typename attention::query_rows queries{held.q};
        attention work(self, queries, scale_after(args.score, args.scale));
        for (int i = 0; exists(i); ++i) {
            wait_copies<ahead - 1>(self);
            self.sync();
            const stage* const keys = &held.keys[i % ahead];
            work.attend(self, queries, keys, own, key_of(i), now.keys.end, args.mask, args.score, args.scale, {});
            self.sync();
            ask();
        }
        typename attention::result made;
        work.finish(self, made, 1.0f);
        warp_partial& left = memory.template as<warp_partial>();
        static_for<attention::acc_tiles>([&](auto tile_idx) {
            constexpr int width = attention::acc_tile_width;
            store(self, left.acc_o.template subtile<block_m, width>(0, tile_idx * width), made.acc_o[tile_idx]);
        });
        store(self, left.row_max, made.row_max);
        store(self, left.row_sum, made.row_sum);
    }

    // Copies the keys and values of a stage; 16 consecutive keys are always in one page.
    IMBREX_KERNEL static void fetch(warp& self, const arguments& args, const work_item& now, stage& to, int first_key) {
        static_for<block_n / page_size_step>([&](auto tile_idx) {
            const int row = tile_idx * page_size_step;
            copy_rows(self, to.k, row, kv_rows(args.k, args.lengths, now, now.kv_head).from(first_key + row, 0));
            copy_rows(self, to.v, row, kv_rows(args.v, args.lengths, now, now.kv_head).from(first_key + row, 0));
        });
    }
    IMBREX_KERNEL static void copy_rows(warp& self, key_tile& to, int row, const global_tile<const In>& from) {
        constexpr int panel = key_tile::layout::panel_columns;
        static_for<HeadDim / panel>([&](auto number) {
            copy_aligned_async(self, to.template subtile<page_size_step, panel>(row, number * panel),
                               from.from(0, number * panel));
        });
    }
    IMBREX_KERNEL static void fetch_queries(warp& self, const arguments& args, const gqa_rows& own, query_tile& to) {
        const query_pointers places(args.q, args.lengths, own.sequence.batch);
        warp_tile<In, block_m, block_m> query_tiles[HeadDim / block_m];
        static_for<HeadDim / block_m>([&](auto number) {
            load_decode_rows<decode_access::vec2>(self, query_tiles[number], places.of(own, number * block_m));
        });
        static_for<HeadDim / block_m>([&](auto number) {
            store(self, to.template subtile<block_m, block_m>(0, number * block_m), query_tiles[number]);
        });
    }

    // Merges the warps of the block, each some columns, and stores the result for the cluster.
    IMBREX_KERNEL static void merge_warps(warp& self, const work_item& now, shared_memory& shared, int rank) {
        for (int i = self.index(); i < slices; i += warps) {
            decode_partial_slice all;
            clear(self, all);
            merge_slices<warps>(self, all, now.active_warps(rank), [&](int from, decode_partial_slice& one) {
                const warp_partial& left = shared.warp_memory[from].template as<warp_partial>();
                load(self, one.acc_o, slice_of(left.acc_o, i));
                load(self, one.row_max, left.row_max);
                load(self, one.row_sum, left.row_sum);
            });
            store(self, slice_of(shared.partial.acc_o, i), all.acc_o);
            if (i == 0) {
                store(self, slice_of(shared.partial.row_max_and_sum, 0), in_all_columns(self, all.row_max));
                store(self, slice_of(shared.partial.row_max_and_sum, 1), in_all_columns(self, all.row_sum));
            }
        }
    }
    // Merges the blocks of the cluster, each some columns.
    IMBREX_KERNEL static void merge_blocks(warp& self, const arguments& args, const work_item& now,
                                           shared_memory& shared, int rank) {
        const block_partial& there = shared.partial;
        for (int i = rank + cluster * self.index(); i < slices; i += cluster * warps) {
            decode_partial_slice all;
            clear(self, all);
            merge_slices<cluster>(self, all, cluster, [&](int from, decode_partial_slice& one) {
                slice row_max, row_sum;
                dsmem_load(self, one.acc_o, slice_of(there.acc_o, i), from);
                dsmem_load(self, row_max, slice_of(there.row_max_and_sum, 0), from);
                dsmem_load(self, row_sum, slice_of(there.row_max_and_sum, 1), from);
                one.row_max = column_of(self, row_max, 0);
                one.row_sum = column_of(self, row_sum, 0);
            });
            const gqa_rows own{now.sequence, args.schedule.q_heads_per_kv_head, now.first_row};
            store_output_slice<Result, decode_access::vec2>(self, args.results, args.lengths,
                                                            {own, block_m, i * decode_slice_columns, HeadDim}, all);
        }
    }

    using slice = warp_tile<float, block_m, decode_slice_columns>;
    template <class Tile>
    IMBREX_KERNEL static auto slice_of(Tile& tile, int number) {
        return tile.template subtile<block_m, decode_slice_columns>(0, number * decode_slice_columns);
    }
    IMBREX_KERNEL static slice in_all_columns(const warp& self, const decode_partial_slice::values& values) {
        slice all;
        fill(self, all, 0.0f);
        combine_with_rows(self, all, values, [](float, float value) { return value; });
        return all;
    }
};

}  // namespace imbrex
