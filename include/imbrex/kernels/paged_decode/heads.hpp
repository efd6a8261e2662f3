// Attention of a few new tokens of many sequences to keys and values in pages, where each multiprocessor has a sequence or more
// to read. Made for Hopper, as paged_decode/hopper.hpp is, of which it differs in who has what: a unit of work is one sequence
// for all of eight heads of keys, and each of eight consumer warps has a head of its own.
//
//     a stage    | head 0 | head 1 | .. | head 7 |        the same keys of all of them, which lie side by side in a page
//     warp         0        1             7
//
// So a sequence is one piece of work and not eight, nobody puts warps' results together, and the memory for that is the ring's.
// Products are turned round (paged_decode/attend_turned.hpp). Where other blocks have parts of the same sequence, each warp
// leaves its own in global memory, and whoever comes last puts those of its head together.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/paged_decode/attend_turned.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/feed.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/kernels/paged_decode/scaling.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_to_come.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/pack.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

// Keys of a stage, and stages: a stage has at most 64 KB of eight heads, and the ring 192.
struct decode_heads_shape {
    int keys;
    int stages;
    int heads = 8;
};

template <class In, int Depth, class Mask, class Score, decode_heads_shape Shape,
          attention_result Result = attention_result::normalised, class Cache = In>
struct paged_decode_heads {
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int unit_heads = Shape.heads;
    static constexpr int warps = 4 + (unit_heads + 3) / 4 * 4;
    static constexpr int rows = 8;  // of queries, as many as the products turned round have columns
    static constexpr int columns = Shape.keys;
    static_assert(columns % page_step == 0, "imbrex: a stage has a multiple of 16 keys");
    using key_tile = shared_tile<Cache, columns, Depth>;
    using query_tile = shared_tile<In, decode_slice, Depth>;
    struct keys_and_values {
        key_tile k;
        key_tile v;
    };
    struct stage {
        keys_and_values of[unit_heads];
    };

    // Columns may be fewer than the depth; those that do not exist are taken as zero.
    struct arguments : decode_arguments<In, Mask, Score> {
        tensor<key_tile, 4> k;
        tensor<key_tile, 4> v;
        bool early;  // the cache is read while the kernel before still runs, but for the new tokens' keys
    };
    struct shared_memory {
        pipeline_items<stage, Shape.stages> items;
        query_tile q[unit_heads];
        pipeline_barriers<stage, Shape.stages> ring;
        tile_queue<4, decode_piece> pieces;
    };
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    // What blocks leave for one another is a result of each head, as large as so many slices.
    using largest_partial = decode_partial_of<Depth * rows / decode_slice>;
    static constexpr int slices_left =
        static_cast<int>((unit_heads * sizeof(largest_partial) + sizeof(decode_partial) - 1) / sizeof(decode_partial));
    struct consumers : decode_workspace<slices_left> {
        static constexpr int slices_for(std::int64_t) { return slices_left; }
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.k);
        prefetch_descriptor(block, args.v);
        shared.ring.init(block, shared.items.items, unit_heads);
        shared.pieces.init(block, unit_heads);
        fence_barriers(block);
        block.sync();
        if (!args.early) wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.roles(producer<40>([&](warp& self) { produce(self, block, args, shared); }),
                    single_warps<unit_heads, 232>("consumer", [&](warp& self) {
                        auto pieces = shared.pieces.read(self);
                        auto stages = shared.ring.consumer(self, shared.items.items);
                        if (args.early) wait_for_kernel_before(self);
                        consume(self, args, shared.q[self.index()], pieces, stages);
                    }));
    }

  private:
    template <class Block>
    IMBREX_KERNEL static void produce(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto stages = shared.ring.producer(self, shared.items.items);
        auto passing = shared.pieces.draw(self, block, 0, nullptr);
        decode_plan<rows, columns, Mask, unit_heads> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
        feed_pieces<columns>(self, block, args, plan, passing, stages,
                             [&](const auto& slot, int row, const paged_lengths::place& at, int first_head) {
                                 for (int i = 0; i < unit_heads; ++i) {
                                     load_from_page(self, slot->of[i].k, row, args.k, at, first_head + i, slot);
                                     load_from_page(self, slot->of[i].v, row, args.v, at, first_head + i, slot);
                                 }
                             });
    }

    // A stage as who attends to one head sees it.
    template <class Held>
    struct own_stage {
        Held& held;
        int head;
        IMBREX_KERNEL keys_and_values* operator->() const { return &held->of[head]; }
        IMBREX_KERNEL void release() const { held.release(); }
    };

    static constexpr int query_parts = Depth / 16;
    struct queries {
        warp_tile<In, decode_slice, 16> parts[query_parts];
    };
    using result = decode_result<1, Depth>;

    template <class Pieces, class Stages>
    IMBREX_KERNEL static void consume(warp& self, const arguments& args, query_tile& q, Pieces& pieces,
                                      Stages& stages) {
        decode_piece now = of_own_head(self, pieces.next(), args);
        queries asked;
        ask_queries(self, asked, now, args);
        while (now.exists()) {
            result made;
            attend(self, args, now, asked, q, stages, made);
            // The next piece's queries come while this one's results are written.
            const decode_piece then = of_own_head(self, pieces.next(), args);
            ask_queries(self, asked, then, args);
            if (now.sequence.queries * args.sizes.heads_per_key_head.value - now.first_row <= 4) {
                finish<4>(self, now, args, made);
            } else {
                finish<8>(self, now, args, made);
            }
            now = then;
        }
    }

    IMBREX_KERNEL static decode_piece of_own_head(const warp& self, const decode_piece& piece, const arguments& args) {
        decode_piece own = piece;
        own.key_head += self.index();
        own.sequence.head = own.key_head * args.sizes.heads_per_key_head.value;
        return own;
    }
    IMBREX_KERNEL static decode_rows rows_of(const decode_piece& now, const arguments& args) {
        return {now.sequence, args.sizes.heads_per_key_head, now.first_row};
    }

    IMBREX_KERNEL static void ask_queries(warp& self, queries& to, const decode_piece& of, const arguments& args) {
        const query_places places(args.q, args.lengths, of.sequence.batch, of.exists());
        for_each_constant<query_parts>([&](auto number) {
            load_decode_rows<decode_access::in_pairs>(self, to.parts[number],
                                                      places.of(rows_of(of, args), number * 16));
        });
    }

    template <class Stages>
    IMBREX_KERNEL static void attend(warp& self, const arguments& args, const decode_piece& now, const queries& asked,
                                     query_tile& q, Stages& stages, result& made) {
        decode_sums::values largest;
        fill(self, largest, 0.0f);
        for_each_constant<query_parts>([&](auto number) {
            store(self, q.template part<decode_slice, 16>(0, number * 16),
                  in_order_beside<Cache>(self, asked.parts[number]));
            if constexpr (turned_queries<In, Depth, Cache>::fitted) {
                combine(self, largest, largest_magnitudes(self, asked.parts[number]), maximum{});
            }
        });
        self.sync();
        decode_scaling<multiplied_as<Cache>, Cache, columns, 1> scales(args, now);
        decode_attention_turned<In, Depth, columns, Cache, rows> work(self, q, largest,
                                                                      scale_after(args.score, scales.of_scores()));
        for (int step = 0; step < now.steps; ++step) {
            const int first_key = (now.step + step) * columns;
            const decode_scales<columns> of_pages = scales.of_pages(self, args, now, first_key);
            auto all = stages.wait();
            own_stage<decltype(all)> held{all, self.index()};
            // Behind the last key there may be anything, even NaN, which no weight of zero would silence.
            if (now.keys.end - first_key < columns) {
                fill_rows(self, held->v, now.keys.end - first_key, convert<Cache>(0.0f));
                fence_async(self);
                self.sync();
            }
            work.attend(self, held, rows_of(now, args), first_key, now.keys.end, args.mask, args.score,
                        scales.of_scores(), of_pages);
        }
        work.finish(self, made, scales.of_sums());
        self.sync();  // queries have been read
    }

    // What the warp has found out of its rows, of which so many are kept: written; or left for whoever comes last of the blocks
    // that have parts of the unit, who puts them together in the order of the keys.
    template <int Kept>
    IMBREX_KERNEL static void finish(warp& self, const decode_piece& now, const arguments& args, const result& made) {
        constexpr int width = Depth * Kept / decode_slice;
        decode_sums_of<width> all{pack_rows<Kept>(self, made.sums[0]), pack_rows<Kept>(self, made.largest),
                                  pack_rows<Kept>(self, made.total)};
        if (now.parts > 1) {
            const auto place_of = [&](int part) {
                decode_partial* const place = args.partials + std::int64_t{now.place(part)} * args.sizes.part_slices;
                return reinterpret_cast<decode_partial_of<width>*>(place) + self.index();
            };
            place_of(now.part)->store_from(self, all);
            int* const counter = args.counters + std::int64_t{now.first_block} * unit_heads + self.index();
            if (!is_last_to_come(self, counter, now.parts)) return;
            clear(self, all);
            add_slices<Kept == 4 ? 4 : 2>(self, all, now.parts, [&](int part, decode_sums_of<width>& one) {
                place_of(part)->load_to(self, one);
            });
        }
        for_each_constant<width / decode_slice_width>([&](auto number) {
            constexpr int column = number * decode_slice_width;
            decode_sums one{hw::columns_of<column, decode_slice_width>(self, all.sums, source::current()), all.largest,
                            all.total};
            write_slice<Result, decode_access::in_pairs>(self, args.results, args.lengths,
                                                         {rows_of(now, args), Kept, column, Depth}, one);
        });
    }
};

}  // namespace imbrex
