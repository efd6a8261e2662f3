// Attention of a few new tokens of each sequence to keys and values in pages, where the time goes into reading these once. Made
// for Hopper: a persistent grid of one block a multiprocessor.
//
//   producer     finds out the block's pieces of work (paged_decode/plan.hpp) and has their keys and values copied, some keys at a
//                time, into a ring of stages
//   consumers    eight warps. Each stage is one warp's alone, which multiplies it with 16 rows of queries (those of several heads and
//                tokens) by mma.sync; with more rows the stage is shared by a warp for each 16 of them
//   combine      at the end of a piece the warps put their results together through shared memory, each warp a slice of columns;
//                meanwhile the copies of the next piece go on. Where other blocks have parts of the same unit, slices go to
//                global memory, and whoever comes last puts them together.
//
//     stages     0   1   2   3   4   5   6   7   8   9   10  ..
//     warp       0   1   2   3   4   5   6   7   0   1   2   ..        no two meet before the end of a piece
//
// What no row sees is not read. Behind the last key there may be anything, even NaN.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_to_come.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/look_up.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace imbrex {

struct decode_shape {
    int groups = 1;  // of 16 rows, 1, 2, 4 or 8: warps that share a stage
    int keys = 32;   // of a stage
    // A multiple of the warps among which they go in turn, so that who waits for a stage has seen all of its rounds.
    int stages = 8;
    int combined_columns = 128;  // for which there is room where warps put their results together
};

template <class In, int Depth, class Mask = full_mask, class Score = plain_score, decode_shape Shape = decode_shape{},
          attention_result Result = attention_result::normalised>
struct paged_decode_hopper {
    static_assert(sizeof(In) == 2, "imbrex: decode multiplies bf16 or fp16");
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int consumer_warps = 8;
    static constexpr int warps = 4 + consumer_warps;
    static constexpr int groups = Shape.groups;
    static constexpr int slice = decode_slice;
    static constexpr int rows = groups * slice;
    static constexpr int columns = Shape.keys;
    static constexpr int sharers = consumer_warps / groups;  // among which stages go in turn
    static constexpr int rounds = Depth / Shape.combined_columns;
    static constexpr int slices = groups * Depth / slice;  // of a unit
    static constexpr int part_width = Depth % 64 == 0 ? 64 : 32;
    // Slices of a result that are put together: as many as there are registers for.
    static constexpr int at_once = rounds > 1 ? 2 : groups > 1 || Depth > 128 ? 4 : 8;
    static_assert(consumer_warps % groups == 0 && Shape.stages % sharers == 0,
                  "imbrex: a stage is shared by 1, 2, 4 or 8 warps, always the same");
    static_assert(columns % page_step == 0 && Depth % Shape.combined_columns == 0 &&
                      Shape.combined_columns % part_width == 0,
                  "imbrex: a stage has a multiple of 16 keys, and results are put together in whole parts");

    using query_tile = shared_tile<In, rows, Depth>;
    using key_tile = shared_tile<In, columns, Depth>;
    using combined_tile = shared_tile<float, slice, Shape.combined_columns>;

    // Columns may be fewer than the depth; those that do not exist are taken as zero.
    struct arguments {
        tensor<key_tile, 4> k;
        tensor<key_tile, 4> v;
        attention_view<const In> q;
        decode_results<In> results;
        Mask mask;
        Score score;
        float scale;
        paged_lengths lengths;
        decode_sizes sizes;
        bool early;  // the cache is read while the kernel before still runs, but for the new tokens' keys
        // See workspace_bytes. The counters are zero before the first launch, and after each.
        int* counters;
        decode_partial* partials;
    };
    struct stage {
        key_tile k;
        key_tile v;
    };
    // What the warps put together, of each.
    struct results_of_warps {
        combined_tile sums[consumer_warps];
        shared_vector<float, slice> largest[consumer_warps];
        shared_vector<float, slice> total[consumer_warps];
    };
    struct shared_memory {
        pipeline_items<stage, Shape.stages> items;
        results_of_warps left;
        query_tile q;  // of the piece at work
        pipeline_barriers<stage, Shape.stages> ring;
        tile_queue<4, decode_piece> pieces;
    };
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    // Of a grid of so many blocks: for each of them a counter for each slice, and the slices of the two units that it may have
    // parts of.
    static constexpr std::size_t counters_bytes(int blocks) {
        return (static_cast<std::size_t>(blocks) * slices * sizeof(int) + 127) / 128 * 128;
    }
    static constexpr std::size_t workspace_bytes(int blocks) {
        return counters_bytes(blocks) + static_cast<std::size_t>(blocks) * 2 * slices * sizeof(decode_partial);
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        prefetch_descriptor(block, args.k);
        prefetch_descriptor(block, args.v);
        shared.ring.init(block, shared.items.items, groups);
        shared.pieces.init(block, consumer_warps);
        fence_barriers(block);
        block.sync();
        if (!args.early) wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.roles(producer<40>([&](warp& self) { produce(self, block, args, shared); }),
                    single_warps<consumer_warps, 232>("consumer", [&](warp& self) { consume(self, args, shared); }));
    }

  private:
    struct queries_are_there {};
    struct results_are_there {};
    struct results_are_read {};
    struct cleaned {
        static constexpr int count = groups == 1 ? 1 : sharers;  // for each that share a stage
    };
    using barriers = named_barriers<queries_are_there, results_are_there, results_are_read, cleaned>;
    template <class Name>
    IMBREX_KERNEL static void meet(const warp& self, source here = source::current()) {
        barriers::template of<Name>().sync(self, consumer_warps, here);
    }

    using scores = warp_tile<float, slice, columns>;
    using weights = warp_tile<In, slice, columns>;
    struct sums {
        warp_tile<float, slice, part_width> parts[Depth / part_width];
    };
    using softmax_state = online_softmax<slice, warp>;

    // function(constant) for 0 up to Count.
    template <int Count, class Function>
    IMBREX_KERNEL static void for_each(const Function& function) {
        [&]<int... Numbers>(std::integer_sequence<int, Numbers...>) {
            (function(std::integral_constant<int, Numbers>{}), ...);
        }
        (std::make_integer_sequence<int, Count>{});
    }

    template <class Block>
    IMBREX_KERNEL static void produce(warp& self, const Block& block, const arguments& args, shared_memory& shared) {
        auto stages = shared.ring.producer(self, shared.items.items);
        auto passing = shared.pieces.draw(self, block, 0, nullptr);
        bool waits = args.early;  // for the kernel before, which may write the keys of the new tokens
        decode_plan<rows, columns, Mask> plan(self, args.sizes, args.lengths, args.mask, block.count().x);
        plan.for_each_piece(self, block.index().x, [&](decode_piece& piece, const auto& complete) {
            // Which pages are the first is asked for before all else.
            const places_of_parts places = look_up_pages(self, piece, 0, args);
            complete(piece);
            passing.pass_on(piece);
            feed(self, piece, places, args, stages, waits);
        });
        passing.pass_on({});  // no piece at all: it is over
    }

    // A stage is put together from as many rows of a page at a time as the tensors copy. The lanes look up the pages of many of
    // these parts at once, from that of a step on.
    using places_of_parts = hw::lane_values<paged_lengths::place, warp::threads>;
    IMBREX_KERNEL static places_of_parts look_up_pages(warp& self, const decode_piece& piece, int step,
                                                       const arguments& args) {
        return look_up<warp::threads>(self, [&](int number) {
            const int rows_of_part = args.k.copied_rows;
            return args.lengths.place_of(piece, (piece.step + step) * columns + number * rows_of_part, rows_of_part);
        });
    }

    // The keys of a piece, stage by stage. The first places have been looked up.
    template <class Stages>
    IMBREX_KERNEL static void feed(warp& self, const decode_piece& piece, places_of_parts places, const arguments& args,
                                   Stages& stages, bool& waits) {
        const int rows_of_part = args.k.copied_rows, in_stage = columns / rows_of_part;
        for (int step = 0, looked_up = 0; step < piece.steps; ++step, looked_up += in_stage) {
            if (looked_up == warp::threads) {
                places = look_up_pages(self, piece, step, args);
                looked_up = 0;
            }
            if (waits && (piece.step + step + 1) * columns > piece.sequence.offset()) {
                wait_for_kernel_before(self);
                waits = false;
            }
            auto slot = stages.acquire();
            for (int part = 0; part < in_stage; ++part) {
                const paged_lengths::place at = entry(self, places, looked_up + part);
                load_part(self, slot->k, part * rows_of_part, args.k, at, piece.key_head, slot);
                load_part(self, slot->v, part * rows_of_part, args.v, at, piece.key_head, slot);
            }
        }
    }
    template <class Slot>
    IMBREX_KERNEL static void load_part(warp& self, key_tile& to, int row, const tensor<key_tile, 4>& from,
                                        const paged_lengths::place& at, int key_head, const Slot& slot) {
        const auto found = from.at(at.page, key_head, at.row, 0);
        const bool none = at.row >= from.extents[2];
        load_rows_async(self, to, row, none ? found.may_be_outside() : found, slot);
    }

    IMBREX_KERNEL static void consume(warp& self, const arguments& args, shared_memory& shared) {
        const int group = self.index() % groups, turn = self.index() / groups;
        auto pieces = shared.pieces.read(self);
        auto stages = shared.ring.consumer(self, shared.items.items);
        stages.skip(turn);
        if (args.early) wait_for_kernel_before(self);
        int passed = 0;   // steps of the pieces before
        int next = turn;  // the next step of this warp, counted over all pieces
        decode_piece now = pieces.next();
        queries asked;
        ask_queries(self, asked, now, args);
        while (now.exists()) {
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row + group * slice};
            share_queries(self, asked, shared.q);
            meet<queries_are_there>(self);
            sums out;
            for (auto& part : out.parts) fill(self, part, 0.0f);
            softmax_state softmax(self, scale_after(args.score, args.scale));
            const bool has_steps = next < passed + now.steps;
            for (; next < passed + now.steps; next += sharers) {
                auto held = stages.wait();
                stages.skip(sharers - 1);
                attend(self, shared.q, *held, own, now, (now.step + next - passed) * columns, args, softmax, out);
            }
            softmax.finish_sums(self);
            // The next piece's queries come while this one's results are put together.
            const decode_piece then = pieces.next();
            ask_queries(self, asked, then, args);
            const int took_part = now.steps < sharers ? now.steps : sharers;
            for_each<rounds>([&](auto round) {
                // The first time that is so since the queries came.
                if constexpr (round > 0) meet<results_are_read>(self);
                if (has_steps) leave<round>(self, shared.left, out, softmax);
                meet<results_are_there>(self);
                finish<round>(self, now, passed % sharers, took_part, args, shared);
            });
            passed += now.steps;
            now = then;
        }
    }

    // Each warp brings some of a piece's queries for all: into registers, and, when those before have been read (all have met since),
    // into shared memory.
    struct queries {
        warp_tile<In, slice, slice> parts[(slices + consumer_warps - 1) / consumer_warps];
    };
    template <class Function>
    IMBREX_KERNEL static void for_each_query_part(const warp& self, const Function& function) {
        for_each<(slices + consumer_warps - 1) / consumer_warps>([&](auto number) {
            const int i = self.index() + number * consumer_warps;
            if (i < slices) function(number, i % groups * slice, i / groups * slice);
        });
    }
    IMBREX_KERNEL static void ask_queries(warp& self, queries& to, const decode_piece& of, const arguments& args) {
        const int batch = of.sequence.batch;
        const int member = args.lengths.member(batch);
        const int first_query = of.exists() ? args.lengths.first_query(batch) : 0;
        for_each_query_part(self, [&](auto number, int row, int column) {
            const decode_rows some{of.sequence, args.sizes.heads_per_key_head, of.first_row + row};
            load_rows_from(self, to.parts[number], [&](int row) {
                const In* const begin =
                    args.q.at(member, some.head(row), first_query + some.query(row), column).pointer;
                return some.exists(row) && column < args.q.columns() ? begin : nullptr;
            });
        });
    }
    IMBREX_KERNEL static void share_queries(warp& self, const queries& from, query_tile& to) {
        for_each_query_part(self, [&](auto number, int row, int column) {
            store(self, to.template part<slice, slice>(row, column), from.parts[number]);
        });
    }

    IMBREX_KERNEL static void attend(warp& self, const query_tile& queries, stage& from, const decode_rows& own,
                                     const decode_piece& now, int first_key, const arguments& args,
                                     softmax_state& softmax, sums& out) {
        const int exist = now.keys.end - first_key;
        if (exist < columns) clean(self, from.v, exist);
        scores s;
        fill(self, s, 0.0f);
        const int first_row = self.index() % groups * slice;
        for_each<Depth / slice>([&](auto number) {
            warp_tile<In, slice, slice> q;
            warp_tile<In, columns, slice> keys;
            load_operand<side::left>(self, q, queries.template part<slice, slice>(first_row, number * slice));
            load_operand<side::right>(self, keys, from.k.template part<columns, slice>(0, number * slice));
            mma_abt(self, s, q, keys);
        });
        judge_rows(self, s, own, first_key, now.keys.end, args.mask, args.score, args.scale);
        softmax.weigh(self, s, [&](const auto& factors) {
            for (auto& part : out.parts) combine_with_rows(self, part, factors, multiply{});
        });
        const weights p = to<In>(self, s);
        for_each<columns / slice>([&](auto number) {
            for_each<Depth / part_width>([&](auto part) {
                warp_tile<In, slice, part_width, order::columns> values;
                load_operand<side::right>(self, values,
                                          from.v.template part<slice, part_width>(number * slice, part * part_width));
                mma_ab(self, out.parts[part], columns_of<number * slice, slice>(self, p), values);
            });
        });
    }

    // Behind the last key there may be anything, even NaN, which no weight of zero would silence: those values become zero.
    IMBREX_KERNEL static void clean(warp& self, key_tile& values, int exist) {
        if (self.index() % groups == 0) {
            fill_rows(self, values, exist, In(0.0f));
            fence_async(self);
        }
        if constexpr (groups == 1) {
            self.sync();
        } else {
            barriers::template of<cleaned>(self.index() / groups).sync(self, groups);
        }
    }

    // A warp's result, some columns of it, for all to see.
    template <int Round>
    IMBREX_KERNEL static void leave(warp& self, results_of_warps& to, const sums& out, const softmax_state& softmax) {
        const int own = self.index();
        constexpr int parts = Shape.combined_columns / part_width;
        for_each<parts>([&](auto part) {
            store(self, to.sums[own].template part<slice, part_width>(0, part * part_width),
                  out.parts[Round * parts + part]);
        });
        store(self, to.largest[own], softmax.largest_log2(self));
        store(self, to.total[own], softmax.sums());
    }

    // The warp's share of slices: put together from the warps that took part, from `first` on in turn, and written; or left for
    // whoever comes last of the blocks that have parts of the unit.
    template <int Round>
    IMBREX_KERNEL static void finish(warp& self, const decode_piece& now, int first, int took_part,
                                     const arguments& args, shared_memory& shared) {
        constexpr int in_round = Shape.combined_columns / slice;
        for (int i = self.index(); i < groups * in_round; i += consumer_warps) {
            const int group = i / in_round, column = i % in_round * slice;
            decode_sums all;
            clear(self, all);
            add_slices<at_once>(self, all, took_part, [&](int number, decode_sums& one) {
                const int from = (first + number) % sharers * groups + group;
                load(self, one.sums, shared.left.sums[from].template part<slice, slice>(0, column));
                load(self, one.largest, shared.left.largest[from]);
                load(self, one.total, shared.left.total[from]);
            });
            if (now.parts > 1 && !all_parts(self, now, i + Round * groups * in_round, args, all)) continue;
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row + group * slice};
            write_slice<Result>(self, args.results, args.lengths, own, Round * Shape.combined_columns + column, all);
        }
    }

    // Leaves a part's slice. If all others have been left, they are put together, in the order of the keys.
    IMBREX_KERNEL static bool all_parts(warp& self, const decode_piece& now, int number, const arguments& args,
                                        decode_sums& all) {
        // A block has parts of two units at most: the end of one, or its middle, and the beginning of another.
        const auto place_of = [&](int part) {
            const std::int64_t place = std::int64_t{now.first_block + part} * 2 + (part == 0 ? 1 : 0);
            return args.partials + place * slices + number;
        };
        place_of(now.part)->store_from(self, all);
        int* const counter = args.counters + std::int64_t{now.first_block} * slices + number;
        if (!is_last_to_come(self, counter, now.parts)) return false;
        clear(self, all);
        add_slices<at_once>(self, all, now.parts,
                            [&](int part, decode_sums& one) { place_of(part)->load_to(self, one); });
        return true;
    }
};

}  // namespace imbrex
