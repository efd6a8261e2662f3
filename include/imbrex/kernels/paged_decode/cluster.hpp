// Attention of a few new tokens of few sequences to few keys in pages, where neither memory nor arithmetic take time but what waits for
// what. Made for Hopper: each unit of work, the rows of one key head of one sequence, has a cluster of eight blocks.
//
//   attend      Every 32nd stage of keys is one warp's, which copies it by itself: while the kernel before still runs, if that is said to write
//               the new tokens' keys alone. It brings its queries by itself, too.
//   combine     The warps of a block put their results together through shared memory, and the blocks through that of the cluster.
//               Nothing goes through global memory but the result, and nobody counts.
//
//     stages     0   1   2   ..   7   8   9   ..
//     block      0   1   2   ..   7   0   1   ..
//     warp       0   0   0   ..   0   1   1   ..
//
// What no row sees is not read; it lands as zero, and so does what is behind the last key.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/consumers.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/cluster.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

namespace imbrex {

template <class In, int Depth, class Mask = full_mask, class Score = plain_score,
          attention_result Result = attention_result::normalised>
struct paged_decode_cluster {
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int cluster = 8;
    static constexpr int warps = 4;  // so few registers in all that a block has room beside others'
    static constexpr int rows = decode_slice;
    static constexpr int columns = Depth > 128 ? 16 : 32;  // keys of a stage
    static constexpr int ahead = Depth > 64 ? 1 : 2;       // stages of a warp
    static constexpr int slices = Depth / decode_slice_width;
    using attention = decode_attention<In, Depth, columns>;
    using key_tile = typename attention::key_tile;

    // Columns may be fewer than the depth; those that do not exist are taken as zero. Rows of keys and values begin at multiples of
    // 16 bytes.
    struct arguments : decode_arguments<In, Mask, Score> {
        attention_view<const In> k;
        attention_view<const In> v;
        bool early;  // the cache is read while the kernel before still runs, but for the new tokens' keys
    };
    using query_tile = shared_tile<In, rows, Depth>;
    using stage = decode_stage<key_tile>;
    struct inputs_of_warp {
        stage keys[ahead];
        query_tile q;
    };
    // In the same place.
    struct result_of_warp {
        shared_tile<float, rows, Depth> sums;
        shared_vector<float, rows> largest;
        shared_vector<float, rows> total;
    };
    // Of a block, for the others of its cluster. Each row's largest and total are in all columns of their parts.
    struct result_of_block {
        shared_tile<float, rows, Depth> sums;
        shared_tile<float, rows, 2 * decode_slice_width> largest_and_total;
    };
    struct shared_memory {
        overlay<inputs_of_warp, result_of_warp> of_warps[warps];
        result_of_block together;
    };

    // A block for each part of each unit.
    static constexpr int blocks_of(int batches, int key_heads) { return batches * key_heads * cluster; }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        if (!args.early) wait_for_kernel_before(block);
        allow_next_kernel(block);
        const int number = block.index().x / cluster, rank = block.cluster_rank();
        unit now(number, args);
        do {
            block.each_warp([&](warp& self) { attend(self, now, rank, args, shared.of_warps[self.index()]); });
            block.sync();
            block.each_warp([&](warp& self) { put_warps_together(self, now, rank, shared); });
            block.cluster_sync();
            block.each_warp([&](warp& self) { put_blocks_together(self, now, rank, args, shared); });
            block.cluster_sync();  // nobody's memory goes while another reads it
            now.first_row += rows;
        } while (now.first_row < now.all_rows);
    }

  private:
    // Sixteen rows at a time of one key head of a sequence; mostly there are no more.
    struct unit : attention_work {
        int key_head;
        int first_row = 0;
        int all_rows;
        int first_stage, stages;

        IMBREX_KERNEL unit(int number, const arguments& args) {
            const int key_heads = args.sizes.key_heads, heads = args.sizes.heads_per_key_head.value;
            const int batch = number / key_heads;
            key_head = number - batch * key_heads;
            sequence = args.lengths.of(batch, key_head * heads);
            queries = {0, sequence.queries};
            keys = keys_seen(sequence, heads, queries, args.mask);
            all_rows = sequence.queries * heads;
            first_stage = keys.first / columns;
            stages = all_rows == 0 ? 0 : (keys.end + columns - 1) / columns - first_stage;
        }

        // Of this block's warps, so many have keys.
        IMBREX_KERNEL int warps_with_keys(int rank) const {
            const int own = (stages - rank + cluster - 1) / cluster;
            return own < warps ? own : warps;
        }
    };

    IMBREX_KERNEL static void attend(warp& self, const unit& now, int rank, const arguments& args,
                                     overlay<inputs_of_warp, result_of_warp>& memory) {
        inputs_of_warp& held = memory.template as<inputs_of_warp>();
        // The warp's own stages are counted from 0 on.
        const int first = rank + cluster * self.index();
        const auto exists = [&](int i) { return first + i * cluster * warps < now.stages; };
        const auto key_of = [&](int i) { return (now.first_stage + first + i * cluster * warps) * columns; };
        int asked = 0;
        const auto ask = [&] {
            if (exists(asked)) fetch(self, now, key_of(asked), args, held.keys[asked % ahead]);
            commit_copies(self);
            ++asked;
        };
        while (asked < ahead && key_of(asked) + columns <= now.sequence.offset()) ask();
        if (args.early) wait_for_kernel_before(self);
        if (!exists(0)) return;
        while (asked < ahead) ask();
        const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row};
        fetch_queries(self, own, args, held.q);
        attention work(self, scale_after(args.score, args.scale));
        for (int i = 0; exists(i); ++i) {
            wait_copies<ahead - 1>(self);
            self.sync();
            const stage& keys = held.keys[i % ahead];
            work.attend(self, held.q, 0, keys.k, keys.v, own, key_of(i), now.keys.end, args.mask, args.score,
                        args.scale);
            self.sync();
            ask();
        }
        typename attention::result made;
        work.finish(self, made);
        result_of_warp& left = memory.template as<result_of_warp>();
        for_each_constant<attention::parts>([&](auto part) {
            constexpr int width = attention::part_width;
            store(self, left.sums.template part<rows, width>(0, part * width), made.sums[part]);
        });
        store(self, left.largest, made.largest);
        store(self, left.total, made.total);
    }

    // A stage's keys and values, each sixteen of which are in one page.
    IMBREX_KERNEL static void fetch(warp& self, const unit& now, int first_key, const arguments& args, stage& to) {
        for_each_constant<columns / page_step>([&](auto part) {
            const int row = part * page_step;
            copy_rows(self, to.k, row, key_rows(args.k, args.lengths, now, now.key_head).from(first_key + row, 0));
            copy_rows(self, to.v, row, key_rows(args.v, args.lengths, now, now.key_head).from(first_key + row, 0));
        });
    }
    IMBREX_KERNEL static void copy_rows(warp& self, key_tile& to, int row, const global_tile<const In>& from) {
        constexpr int panel = key_tile::layout::panel_columns;
        for_each_constant<Depth / panel>([&](auto number) {
            copy_chunks_async(self, to.template part<page_step, panel>(row, number * panel),
                              from.from(0, number * panel));
        });
    }
    IMBREX_KERNEL static void fetch_queries(warp& self, const decode_rows& own, const arguments& args, query_tile& to) {
        const query_places places(args.q, args.lengths, own.sequence.batch);
        warp_tile<In, rows, rows> parts[Depth / rows];
        for_each_constant<Depth / rows>([&](auto number) {
            load_decode_rows<decode_access::in_pairs>(self, parts[number], places.of(own, number * rows));
        });
        for_each_constant<Depth / rows>(
            [&](auto number) { store(self, to.template part<rows, rows>(0, number * rows), parts[number]); });
    }

    // Of the block's warps. Each puts some columns together, and leaves them for the cluster.
    IMBREX_KERNEL static void put_warps_together(warp& self, const unit& now, int rank, shared_memory& shared) {
        for (int i = self.index(); i < slices; i += warps) {
            decode_sums all;
            clear(self, all);
            add_slices<warps>(self, all, now.warps_with_keys(rank), [&](int from, decode_sums& one) {
                const result_of_warp& left = shared.of_warps[from].template as<result_of_warp>();
                load(self, one.sums, slice_of(left.sums, i));
                load(self, one.largest, left.largest);
                load(self, one.total, left.total);
            });
            store(self, slice_of(shared.together.sums, i), all.sums);
            if (i == 0) {
                store(self, slice_of(shared.together.largest_and_total, 0), in_all_columns(self, all.largest));
                store(self, slice_of(shared.together.largest_and_total, 1), in_all_columns(self, all.total));
            }
        }
    }
    // Of the cluster's blocks: some columns by each.
    IMBREX_KERNEL static void put_blocks_together(warp& self, const unit& now, int rank, const arguments& args,
                                                  shared_memory& shared) {
        const result_of_block& there = shared.together;
        for (int i = rank + cluster * self.index(); i < slices; i += cluster * warps) {
            decode_sums all;
            clear(self, all);
            add_slices<cluster>(self, all, cluster, [&](int from, decode_sums& one) {
                slice largest, total;
                load_from_block(self, one.sums, slice_of(there.sums, i), from);
                load_from_block(self, largest, slice_of(there.largest_and_total, 0), from);
                load_from_block(self, total, slice_of(there.largest_and_total, 1), from);
                one.largest = column_of(self, largest, 0);
                one.total = column_of(self, total, 0);
            });
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row};
            write_slice<Result, decode_access::in_pairs>(self, args.results, args.lengths,
                                                         {own, rows, i * decode_slice_width, Depth}, all);
        }
    }

    using slice = warp_tile<float, rows, decode_slice_width>;
    template <class Tile>
    IMBREX_KERNEL static auto slice_of(Tile& tile, int number) {
        return tile.template part<rows, decode_slice_width>(0, number * decode_slice_width);
    }
    IMBREX_KERNEL static slice in_all_columns(const warp& self, const decode_sums::values& values) {
        slice all;
        fill(self, all, 0.0f);
        combine_with_rows(self, all, values, [](float, float value) { return value; });
        return all;
    }
};

}  // namespace imbrex
