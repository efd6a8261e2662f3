// The warps that attend: of all kernels that decode, however keys and values come to shared memory.
//
//   attend     Each stage of keys and values is one warp's alone, which multiplies it with 16 rows of queries (those of several heads and
//              tokens) by mma.sync; with more rows the stage is shared by a warp for each 16 of them.
//   combine    At the end of a piece the warps put their results together through shared memory, each warp a slice of columns.
//              Where a unit has other parts, slices go to global memory, and whoever comes last puts them together: of the blocks
//              that have parts, or with the last part if one block has all.
//
//     stages     0   1   2   3   4   5   6   7   8   9   10  ..
//     warp       0   1   2   3   4   5   6   7   0   1   2   ..        no two meet before the end of a piece
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/widening.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/paged_decode/attend.hpp>
#include <imbrex/kernels/paged_decode/attend_turned.hpp>
#include <imbrex/kernels/paged_decode/combine.hpp>
#include <imbrex/kernels/paged_decode/plan.hpp>
#include <imbrex/kernels/paged_decode/rows.hpp>
#include <imbrex/kernels/paged_decode/scaling.hpp>
#include <imbrex/kernels/paged_decode/shape.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/last_to_come.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/pack.hpp>
#include <imbrex/ops/warp/widened.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class In, int Depth, decode_shape Shape, attention_result Result, class Cache = In>
struct decode_consumers : decode_workspace<Shape.groups * Depth / decode_slice_width> {
    static_assert(sizeof(In) == 2, "imbrex: decode multiplies bf16 or fp16");
    static_assert(std::is_same_v<Cache, In> || widens_to<Cache, In>,
                  "imbrex: a cache is of the type of the queries, or e4m3 or int8");
    static constexpr int count = Shape.warps;
    static constexpr int groups = Shape.groups;
    static constexpr int slice = decode_slice;
    static constexpr int rows = groups * slice;
    static constexpr int keys = Shape.keys;
    static constexpr int sharers = count / groups;  // among which stages go in turn
    static constexpr int rounds = Depth / Shape.combined_columns;
    static constexpr int slices = decode_workspace<groups * Depth / decode_slice_width>::slices;
    static constexpr int query_parts = groups * Depth / slice;  // of 16 columns, brought by all warps
    // Few rows, and 8-bit keys that the copy engine brings: products are turned round (paged_decode/attend_turned.hpp).
    static constexpr bool turns = sizeof(Cache) == 1 && groups == 1 && !Shape.threads_copy;
    using attention = decode_attention<In, Depth, keys, Cache>;
    using scaling = decode_scaling<std::conditional_t<turns, multiplied_as<Cache>, In>, Cache, keys, sharers>;
    // Parts of a result that are asked for together: as many as there are registers for.
    static constexpr int at_once = Shape.threads_copy && Depth > 192 ? 1
                                   : rounds > 1                      ? 2
                                   : groups > 1 || Depth > 128       ? 4
                                   : Shape.threads_copy || turns     ? 6
                                                                     : 8;
    static_assert(count % groups == 0 && Shape.stages % sharers == 0,
                  "imbrex: a stage is shared by 1, 2, 4 or 8 warps, always the same");
    static_assert(keys % page_step == 0 && Depth % Shape.combined_columns == 0 &&
                      Shape.combined_columns % attention::part_width == 0,
                  "imbrex: a stage has a multiple of 16 keys, and results are put together in whole parts");

    static constexpr decode_access access = Shape.threads_copy ? decode_access::anywhere : decode_access::in_pairs;
    using query_room =
        std::conditional_t<turns, turned_queries<In, Depth, Cache>, plain_queries<In, rows, Depth, Cache>>;
    using key_tile = typename attention::key_tile;
    using combined_tile = shared_tile<float, slice, Shape.combined_columns>;
    using stage = decode_stage<key_tile>;
    // What the warps put together, of each.
    struct results_of_warps {
        combined_tile sums[count];
        shared_vector<float, slice> largest[count];
        shared_vector<float, slice> total[count];
    };
    struct shared_memory {
        results_of_warps left;
        query_room q;  // of the piece at work
    };

    // Of a part, if no sequence has more rows than so many: as rows_kept packs them.
    static constexpr int slices_for(std::int64_t most_rows) {
        return groups > 1 || most_rows > 8 ? slices : most_rows > 4 ? slices / 2 : slices / 4;
    }

    // Pieces come in their order, up to one that does not exist; stages too: stages.wait() brings the next, which is released at its
    // end, and skip(n) passes by those of other warps.
    template <class Arguments, class Memory, class Pieces, class Stages>
    IMBREX_KERNEL static void run(warp& self, const Arguments& args, Memory& shared, Pieces& pieces, Stages& stages) {
        const int turn = turn_of(self);
        stages.skip(turn);
        int passed = 0;   // steps of the pieces before
        int next = turn;  // the next step of this warp, counted over all pieces
        decode_piece now = pieces.next();
        queries asked;
        if constexpr (!Shape.threads_copy) ask_queries(self, asked, now, args, self.index());
        while (now.exists()) {
            if constexpr (Shape.threads_copy) {
                // When all have read what was in the stages' place, keys and queries are asked for at once.
                meet<results_are_read>(self);
                stages.begin();
                for (int part = self.index(); part < query_parts; part += count * queries::at_once) {
                    queries some;
                    ask_queries(self, some, now, args, part);
                    share_queries(self, some, shared.q, part);
                }
            } else {
                share_queries(self, asked, shared.q, self.index());
            }
            // Where all warps share their stages, they meet at the first.
            if constexpr (!Shape.threads_copy || sharers > 1) meet<queries_are_there>(self);
            const int kept = rows_kept(now, args.sizes);
            const bool has_steps = next < passed + now.steps;
            typename attention::result made;
            if constexpr (turns) {
                attend_turned(self, args, now, passed, next, shared.q, stages, kept, made);
            } else {
                scaling scales(args, now);
                attention work(self, scale_after(args.score, scales.of_scores()));
                const auto with = [&](auto& held, const decode_rows& own, int first_key, const auto& of_pages) {
                    work.attend(self, shared.q.tile, self.index() % groups * slice, held->k, held->v, own, first_key,
                                now.keys.end, args.mask, args.score, scales.of_scores(), of_pages);
                };
                for_own_steps(self, args, now, passed, next, stages, scales, with);
                work.finish(self, made, scales.of_sums());
            }
            // The next piece's queries come while this one's results are put together.
            const decode_piece then = pieces.next();
            if constexpr (!Shape.threads_copy) ask_queries(self, asked, then, args, self.index());
            const int took_part = now.steps < sharers ? now.steps : sharers;
            for_each_constant<rounds>([&](auto round) {
                // The first time that is so since the queries came, but for stages in the same place.
                if constexpr (round > 0 || Shape.threads_copy) meet<results_are_read>(self);
                if (has_steps) leave<round>(self, shared.left, made, kept);
                meet<results_are_there>(self);
                finish<round>(self, now, passed % sharers, took_part, kept, args, shared.left);
            });
            passed += now.steps;
            now = then;
        }
    }

    // The warps that share a stage.
    IMBREX_KERNEL static void meet_sharers(const warp& self, source here = source::current()) {
        if constexpr (groups == 1) {
            self.sync(here);
        } else {
            barriers::template of<sharers_meet>(turn_of(self)).sync(self, groups, here);
        }
    }
    // Which of those among whom stages go in turn.
    IMBREX_KERNEL static int turn_of(const warp& self) { return sharers == 1 ? 0 : self.index() / groups; }

  private:
    struct queries_are_there {};
    struct results_are_there {};
    struct results_are_read {};
    struct sharers_meet {
        static constexpr int count = groups == 1 ? 1 : sharers;  // for each that share a stage
    };
    using barriers = named_barriers<queries_are_there, results_are_there, results_are_read, sharers_meet>;
    template <class Name>
    IMBREX_KERNEL static void meet(const warp& self, source here = source::current()) {
        barriers::template of<Name>().sync(self, count, here);
    }

    template <class Arguments, class Stages>
    IMBREX_KERNEL static void attend_turned(warp& self, const Arguments& args, const decode_piece& now, int passed,
                                            int& next, const query_room& q, Stages& stages, int kept,
                                            typename attention::result& made) {
        if (kept <= 8) {
            attend_turned<8>(self, args, now, passed, next, q, stages, made);
        } else {
            attend_turned<16>(self, args, now, passed, next, q, stages, made);
        }
    }
    template <int Queries, class Arguments, class Stages>
    IMBREX_KERNEL static void attend_turned(warp& self, const Arguments& args, const decode_piece& now, int passed,
                                            int& next, const query_room& q, Stages& stages,
                                            typename attention::result& made) {
        scaling scales(args, now);
        decode_attention_turned<In, Depth, keys, Cache, Queries> work(self, q.tile, q.largest_of_all(self),
                                                                      scale_after(args.score, scales.of_scores()));
        const auto with = [&](auto& held, const decode_rows& own, int first_key, const auto& of_pages) {
            work.attend(self, held, own, first_key, now.keys.end, args.mask, args.score, scales.of_scores(), of_pages);
        };
        for_own_steps(self, args, now, passed, next, stages, scales, with);
        work.finish(self, made, scales.of_sums());
    }

    // The warp's own steps of a piece, of which `next` is the first, and then the first behind it: with(stage, rows, first key, scales).
    template <class Arguments, class Stages, class With>
    IMBREX_KERNEL static void for_own_steps(warp& self, const Arguments& args, const decode_piece& now, int passed,
                                            int& next, Stages& stages, scaling& scales, const With& with) {
        const decode_rows own{now.sequence, args.sizes.heads_per_key_head,
                              now.first_row + self.index() % groups * slice};
        for (; next < passed + now.steps; next += sharers) {
            const int first_key = (now.step + next - passed) * keys;
            const decode_scales<keys> of_pages = scales.of_pages(self, args, now, first_key);
            auto held = stages.wait();
            stages.skip(sharers - 1);
            if constexpr (!Shape.threads_copy) {
                if (now.keys.end - first_key < keys) clean(self, held->v, now.keys.end - first_key);
            }
            with(held, own, first_key, of_pages);
        }
    }

    // Each warp brings some of a piece's queries for all: into registers, and, when those before have been read (all have met since),
    // into shared memory. Where that is done at once, it is some parts at a time, for which there are registers.
    struct queries {
        static constexpr int of_warp = (query_parts + count - 1) / count;
        static constexpr int at_once = Shape.threads_copy && of_warp > 4 ? 4 : of_warp;
        warp_tile<In, slice, slice> parts[at_once];
    };
    // From this part on, which is one of the warp's.
    template <class Function>
    IMBREX_KERNEL static void for_each_query_part(int first, const Function& function) {
        for_each_constant<queries::at_once>([&](auto number) {
            const int i = first + number * count;
            // Not asked where all have as many, but for those who bring some at a time, where it takes fewer registers to ask.
            constexpr bool evenly = !Shape.threads_copy && query_parts % count == 0;
            if (evenly || i < query_parts) function(number, i % groups * slice, i / groups * slice);
        });
    }
    template <class Arguments>
    IMBREX_KERNEL static void ask_queries(warp& self, queries& to, const decode_piece& of, const Arguments& args,
                                          int first) {
        const query_places places(args.q, args.lengths, of.sequence.batch, of.exists());
        for_each_query_part(first, [&](auto number, int row, int column) {
            const decode_rows some{of.sequence, args.sizes.heads_per_key_head, of.first_row + row};
            load_decode_rows<access>(self, to.parts[number], places.of(some, column));
        });
    }
    IMBREX_KERNEL static void share_queries(warp& self, const queries& from, query_room& to, int first) {
        for_each_query_part(first,
                            [&](auto number, int row, int column) { to.store(self, from.parts[number], row, column); });
    }

    // Behind the last key there may be anything, even NaN, which no weight of zero would silence: those values become zero.
    IMBREX_KERNEL static void clean(warp& self, key_tile& values, int exist) {
        if (self.index() % groups == 0) {
            fill_rows(self, values, exist, convert<Cache>(0.0f));
            fence_async(self);
        }
        meet_sharers(self);
    }

    // Of a group's 16 rows those from which on there are none: 4, 8 or 16.
    IMBREX_KERNEL static int rows_kept(const decode_piece& now, const decode_sizes& sizes) {
        const int exist = now.sequence.queries * sizes.heads_per_key_head.value - now.first_row;
        return groups > 1 || exist > 8 ? 16 : exist > 4 ? 8 : 4;
    }

    // A warp's result, some columns of it, for all to see.
    template <int Round>
    IMBREX_KERNEL static void leave(warp& self, results_of_warps& to, const typename attention::result& made,
                                    int kept) {
        if (kept == 4) {
            leave_packed<Round, 4>(self, to, made);
        } else if (kept == 8) {
            leave_packed<Round, 8>(self, to, made);
        } else {
            leave_packed<Round, 16>(self, to, made);
        }
    }
    template <int Round, int Kept>
    IMBREX_KERNEL static void leave_packed(warp& self, results_of_warps& to, const typename attention::result& made) {
        const int own = self.index();
        constexpr int parts = Shape.combined_columns / attention::part_width;
        constexpr int width = attention::part_width * Kept / slice;
        for_each_constant<parts>([&](auto part) {
            store(self, to.sums[own].template part<slice, width>(0, part * width),
                  pack_rows<Kept>(self, made.sums[Round * parts + part]));
        });
        store(self, to.largest[own], pack_rows<Kept>(self, made.largest));
        store(self, to.total[own], pack_rows<Kept>(self, made.total));
    }

    // The warp's share of slices: put together from the warps that took part, from `first` on in turn, and written; or left for
    // whoever comes last of the blocks that have parts of the unit. A warp has the same slices in all of them, which are counted
    // together.
    template <int Round, class Arguments>
    IMBREX_KERNEL static void finish(warp& self, const decode_piece& now, int first, int took_part, int kept,
                                     const Arguments& args, const results_of_warps& left) {
        constexpr int width = decode_slice_width;
        const int packed_width = attention::part_width * kept / slice;
        const int in_round = Shape.combined_columns * kept / (slice * width);
        // Several groups are never packed, so that nothing is divided by what is not known.
        constexpr int of_group = Shape.combined_columns / width;
        const auto group_of = [](int i) { return groups == 1 ? 0 : i / of_group; };
        const auto column_of = [](int i) { return (groups == 1 ? i : i % of_group) * width; };
        const int first_slice = Round * groups * in_round;
        const int there = groups_there(now, args.sizes) * in_round;
        const auto put_together = [&](int i, decode_sums& all) {
            clear(self, all);
            add_slices<at_once>(self, all, took_part, [&](int number, decode_sums& one) {
                const int from = (first + number) % sharers * groups + group_of(i);
                load(self, one.sums, left.sums[from].template part<slice, width>(0, column_of(i)));
                load(self, one.largest, left.largest[from]);
                load(self, one.total, left.total[from]);
            });
        };
        if (self.index() >= there) return;
        if (now.parts > 1) {
            for (int i = self.index(); i < there; i += count) {
                decode_sums all;
                put_together(i, all);
                place_of(now, now.part, first_slice + i, args)->store_from(self, all);
            }
            if (now.blocks == 1 && now.part < now.parts - 1) return;
        }
        if (now.blocks > 1) {
            int* const counter = args.counters + std::int64_t{now.first_block} * slices + first_slice + self.index();
            if (!is_last_to_come(self, counter, now.parts)) return;
        }
        for (int i = self.index(); i < there; i += count) {
            decode_sums all;
            if (now.parts > 1) {
                // In the order of the keys.
                clear(self, all);
                add_slices<at_once>(self, all, now.parts, [&](int part, decode_sums& one) {
                    place_of(now, part, first_slice + i, args)->load_to(self, one);
                });
            } else {
                put_together(i, all);
            }
            const decode_rows own{now.sequence, args.sizes.heads_per_key_head, now.first_row + group_of(i) * slice};
            // A part's columns lie together, those of which rows are packed too.
            const int in_part = column_of(i) & (packed_width - 1);
            const int part_begins = (column_of(i) - in_part) << (kept == 4 ? 2 : kept == 8 ? 1 : 0);
            const int first_column = Round * Shape.combined_columns + part_begins + in_part;
            write_slice<Result, access>(self, args.results, args.lengths,
                                        {own, kept, first_column, attention::part_width}, all);
        }
    }

    // Of the groups those that have any rows.
    IMBREX_KERNEL static int groups_there(const decode_piece& now, const decode_sizes& sizes) {
        const int exist = now.sequence.queries * sizes.heads_per_key_head.value - now.first_row;
        return groups == 1 || exist <= slice ? 1 : exist < rows ? (exist + slice - 1) / slice : groups;
    }

    // A slice that a part of a unit leaves.
    template <class Arguments>
    IMBREX_KERNEL static decode_partial* place_of(const decode_piece& now, int part, int number,
                                                  const Arguments& args) {
        return args.partials + std::int64_t{now.place(part)} * args.sizes.part_slices + number;
    }
};

}  // namespace imbrex
