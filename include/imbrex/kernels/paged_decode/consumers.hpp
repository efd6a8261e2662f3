// The warps that attend: of all kernels that decode, however keys and values come to shared memory.
//
//   attend     Each stage of keys and values is one warp's alone, which multiplies it with 16 rows of queries (those of several heads and
//              tokens) by mma.sync; with more rows the stage is shared by a warp for each 16 of them.
//   combine    At the end of a piece the warps put their results together through shared memory, each warp a slice of columns.
//              Where other blocks have parts of the same unit, slices go to global memory, and whoever comes last puts them
//              together.
//
//     stages     0   1   2   3   4   5   6   7   8   9   10  ..
//     warp       0   1   2   3   4   5   6   7   0   1   2   ..        no two meet before the end of a piece
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_to_come.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct decode_shape {
    int groups = 1;  // of 16 rows, 1, 2, 4 or 8: warps that share a stage
    int keys = 32;   // of a stage
    // A multiple of the warps among which they go in turn, so that who waits for a stage has seen all of its rounds.
    int stages = 8;
    int combined_columns = 128;  // for which there is room where warps put their results together
};

// What consumers are told.
template <class In, class Mask, class Score>
struct decode_arguments {
    attention_view<const In> q;
    decode_results<In> results;
    Mask mask;
    Score score;
    float scale;
    paged_lengths lengths;
    decode_sizes sizes;
    // See workspace_bytes. The counters are zero before the first launch, and after each.
    int* counters;
    decode_partial* partials;
};

template <class In, int Depth, decode_shape Shape, attention_result Result>
struct decode_consumers {
    static_assert(sizeof(In) == 2, "imbrex: decode multiplies bf16 or fp16");
    static constexpr int count = 8;  // warps
    static constexpr int groups = Shape.groups;
    static constexpr int slice = decode_slice;
    static constexpr int rows = groups * slice;
    static constexpr int keys = Shape.keys;
    static constexpr int sharers = count / groups;  // among which stages go in turn
    static constexpr int rounds = Depth / Shape.combined_columns;
    static constexpr int slices = groups * Depth / slice;  // of a unit
    using attention = decode_attention<In, Depth, keys>;
    // Slices of a result that are put together: as many as there are registers for.
    static constexpr int at_once = rounds > 1 ? 2 : groups > 1 || Depth > 128 ? 4 : 8;
    static_assert(count % groups == 0 && Shape.stages % sharers == 0,
                  "imbrex: a stage is shared by 1, 2, 4 or 8 warps, always the same");
    static_assert(keys % page_step == 0 && Depth % Shape.combined_columns == 0 &&
                      Shape.combined_columns % attention::part_width == 0,
                  "imbrex: a stage has a multiple of 16 keys, and results are put together in whole parts");

    using query_tile = shared_tile<In, rows, Depth>;
    using key_tile = typename attention::key_tile;
    using combined_tile = shared_tile<float, slice, Shape.combined_columns>;
    struct stage {
        key_tile k;
        key_tile v;
    };
    // What the warps put together, of each.
    struct results_of_warps {
        combined_tile sums[count];
        shared_vector<float, slice> largest[count];
        shared_vector<float, slice> total[count];
    };
    struct shared_memory {
        results_of_warps left;
        query_tile q;  // of the piece at work
    };

    // Of a grid of so many blocks: for each of them a counter for each slice, and the slices of the two units that it may have
    // parts of.
    static constexpr std::size_t counters_bytes(int blocks) {
        return (static_cast<std::size_t>(blocks) * slices * sizeof(int) + 127) / 128 * 128;
    }
    static constexpr std::size_t workspace_bytes(int blocks) {
        return counters_bytes(blocks) + static_cast<std::size_t>(blocks) * 2 * slices * sizeof(decode_partial);
    }

    // Pieces come in their order, up to one that does not exist; stages too: stages.wait() brings the next, which is released at its
    // end, and skip(n) passes by those of other warps.
    template <class Arguments, class Pieces, class Stages>
    IMBREX_KERNEL static void run(warp& self, const Arguments& args, shared_memory& shared, Pieces& pieces,
                                  Stages& stages) {
        const int group = self.index() % groups, turn = self.index() / groups;
        stages.skip(turn);
        int passed = 0;   // steps of the pieces before
        int next = turn;  // the next step of this warp, counted over all pieces
        decode_piece now = pieces.next();
        queries asked;
        ask_queries(self, asked, now, args);
        while (now.exists()) {
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row + group * slice};
            share_queries(self, asked, shared.q);
            meet<queries_are_there>(self);
            attention made(self, scale_after(args.score, args.scale));
            const bool has_steps = next < passed + now.steps;
            for (; next < passed + now.steps; next += sharers) {
                auto held = stages.wait();
                stages.skip(sharers - 1);
                const int first_key = (now.step + next - passed) * keys;
                if (now.keys.end - first_key < keys) clean(self, held->v, now.keys.end - first_key);
                made.attend(self, shared.q, group * slice, held->k, held->v, own, first_key, now.keys.end, args.mask,
                            args.score, args.scale);
            }
            made.softmax.finish_sums(self);
            // The next piece's queries come while this one's results are put together.
            const decode_piece then = pieces.next();
            ask_queries(self, asked, then, args);
            const int took_part = now.steps < sharers ? now.steps : sharers;
            for_each_constant<rounds>([&](auto round) {
                // The first time that is so since the queries came.
                if constexpr (round > 0) meet<results_are_read>(self);
                if (has_steps) leave<round>(self, shared.left, made);
                meet<results_are_there>(self);
                finish<round>(self, now, passed % sharers, took_part, args, shared.left);
            });
            passed += now.steps;
            now = then;
        }
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
        barriers::template of<Name>().sync(self, count, here);
    }

    // Each warp brings some of a piece's queries for all: into registers, and, when those before have been read (all have met since),
    // into shared memory.
    struct queries {
        warp_tile<In, slice, slice> parts[(slices + count - 1) / count];
    };
    template <class Function>
    IMBREX_KERNEL static void for_each_query_part(const warp& self, const Function& function) {
        for_each_constant<(slices + count - 1) / count>([&](auto number) {
            const int i = self.index() + number * count;
            if (i < slices) function(number, i % groups * slice, i / groups * slice);
        });
    }
    template <class Arguments>
    IMBREX_KERNEL static void ask_queries(warp& self, queries& to, const decode_piece& of, const Arguments& args) {
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
    IMBREX_KERNEL static void leave(warp& self, results_of_warps& to, const attention& made) {
        const int own = self.index();
        constexpr int parts = Shape.combined_columns / attention::part_width;
        for_each_constant<parts>([&](auto part) {
            store(self, to.sums[own].template part<slice, attention::part_width>(0, part * attention::part_width),
                  made.sums[Round * parts + part]);
        });
        store(self, to.largest[own], made.softmax.largest_log2(self));
        store(self, to.total[own], made.softmax.sums());
    }

    // The warp's share of slices: put together from the warps that took part, from `first` on in turn, and written; or left for
    // whoever comes last of the blocks that have parts of the unit.
    template <int Round, class Arguments>
    IMBREX_KERNEL static void finish(warp& self, const decode_piece& now, int first, int took_part,
                                     const Arguments& args, const results_of_warps& left) {
        constexpr int in_round = Shape.combined_columns / slice;
        for (int i = self.index(); i < groups * in_round; i += count) {
            const int group = i / in_round, column = i % in_round * slice;
            decode_sums all;
            clear(self, all);
            add_slices<at_once>(self, all, took_part, [&](int number, decode_sums& one) {
                const int from = (first + number) % sharers * groups + group;
                load(self, one.sums, left.sums[from].template part<slice, slice>(0, column));
                load(self, one.largest, left.largest[from]);
                load(self, one.total, left.total[from]);
            });
            if (now.parts > 1 && !all_parts(self, now, i + Round * groups * in_round, args, all)) continue;
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row + group * slice};
            write_slice<Result>(self, args.results, args.lengths, own, Round * Shape.combined_columns + column, all);
        }
    }

    // Leaves a part's slice. If all others have been left, they are put together, in the order of the keys.
    template <class Arguments>
    IMBREX_KERNEL static bool all_parts(warp& self, const decode_piece& now, int number, const Arguments& args,
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
