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
// (paged_decode/attend_turned.hpp). Where other blocks have parts of the same sequence, each warp leaves its own columns in global
// memory, and whoever comes last puts those of its head together.
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
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/warp/pack.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstddef>
#include <cstdint>

namespace imbrex {

struct decode_heads_shape {
    int keys;    // of a stage
    int stages;  // of each warp
    int heads = 8;
    int sharers = 1;  // warps that have a head together
};

template <class In, int Depth, class Mask, class Score, decode_heads_shape Shape,
          attention_result Result = attention_result::normalised, class Cache = In>
struct paged_decode_heads {
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int unit_heads = Shape.heads;
    static constexpr int sharers = Shape.sharers;
    static constexpr int count = unit_heads * sharers;  // of warps that attend
    static constexpr int warps = 4 + (count + 3) / 4 * 4;
    static constexpr int rows = 8;  // of queries, as many as the products turned round have columns
    static constexpr int keys = Shape.keys;
    static constexpr int columns = keys * sharers;  // of a step
    static_assert(keys % page_step == 0, "imbrex: a stage has a multiple of 16 keys");
    using key_tile = shared_tile<Cache, keys, Depth>;
    using query_tile = shared_tile<In, decode_slice, Depth>;
    using stage = decode_stage<key_tile>;
    // For each warp. Queries are in registers by the time that there are sums for those who share a head with it.
    using sums_tile = shared_tile<float, decode_slice, Depth * rows / decode_slice>;
    struct rooms {
        overlay<query_tile, sums_tile> queries_or_sums[count];
        shared_vector<float, decode_slice> largest[count];
        shared_vector<float, decode_slice> total[count];

        IMBREX_KERNEL query_tile& queries(int of) { return queries_or_sums[of].template as<query_tile>(); }
        IMBREX_KERNEL sums_tile& sums(int of) { return queries_or_sums[of].template as<sums_tile>(); }
    };

    using arguments = fed_arguments<In, Mask, Score, key_tile>;
    using shared_memory = fed_memory<stage, count * Shape.stages, rooms>;
    static_assert(sizeof(shared_memory) <= shared_memory_limit, "imbrex: a decode's ring is too deep");

    // What blocks leave for one another is a result of each warp, as large as so many slices.
    template <int Kept>
    static constexpr int width_of = Depth* Kept / (decode_slice * sharers);
    static constexpr int least_kept = width_of<4> % decode_slice_width == 0 ? 4 : 8;
    static_assert(width_of<8> % decode_slice_width == 0, "imbrex: so many warps cannot share columns of a head");
    static constexpr int slices_left = static_cast<int>(
        (count * sizeof(decode_partial_of<width_of<8>>) + sizeof(decode_partial) - 1) / sizeof(decode_partial));
    struct consumers : decode_workspace<slices_left> {
        static constexpr int slices_for(std::int64_t) { return slices_left; }
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const auto feed = [&](warp& self, auto& pieces, auto& stages) {
            decode_plan<rows, columns, Mask, unit_heads> plan(self, args.sizes, args.lengths, args.mask,
                                                              block.count().x);
            feed_pieces<columns>(self, block, args, plan, pieces, [&](const parts_of_step& parts, int first_head) {
                for (int sharer = 0, part = 0; sharer < sharers; ++sharer) {
                    const int first = part;
                    for (int head = 0; head < unit_heads; ++head) {
                        auto slot = stages.acquire();
                        part = load_from_pages(self, *slot, args, parts, first, first_head + head, slot);
                    }
                }
            });
        };
        run_fed<count>(block, args, shared, 1, feed, [&](warp& self, auto& pieces, auto& stages) {
            stages.skip(self.index());
            consume(self, args, shared.room, pieces, stages);
        });
    }

  private:
    IMBREX_KERNEL static int head_of(const warp& self) { return self.index() % unit_heads; }
    IMBREX_KERNEL static int sharer_of(const warp& self) { return self.index() / unit_heads; }

    static constexpr int query_parts = Depth / 16;
    struct queries {
        warp_tile<In, decode_slice, 16> parts[query_parts];
    };
    using result = decode_result<1, Depth>;

    template <class Pieces, class Stages>
    IMBREX_KERNEL static void consume(warp& self, const arguments& args, rooms& shared, Pieces& pieces,
                                      Stages& stages) {
        query_tile& q = shared.queries(self.index());
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
                finish<least_kept>(self, now, args, made, shared);
            } else {
                finish<8>(self, now, args, made, shared);
            }
            now = then;
        }
    }

    IMBREX_KERNEL static decode_piece of_own_head(const warp& self, const decode_piece& piece, const arguments& args) {
        decode_piece own = piece;
        own.key_head += head_of(self);
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
        decode_scaling<multiplied_as<Cache>, Cache, keys, sharers> scales(args, now);
        decode_attention_turned<In, Depth, keys, Cache, rows> work(self, q, largest,
                                                                   scale_after(args.score, scales.of_scores()));
        for (int step = 0; step < now.steps; ++step) {
            const int first_key = (now.step + step) * columns + sharer_of(self) * keys;
            const decode_scales<keys> of_pages = scales.of_pages(self, args, now, first_key);
            auto held = stages.wait();
            stages.skip(count - 1);
            if (sharers > 1 && first_key >= now.keys.end) continue;  // none is left for this warp
            // Behind the last key there may be anything, even NaN, which no weight of zero would silence.
            if (now.keys.end - first_key < keys) {
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

    struct sharers_meet {
        static constexpr int count = unit_heads;  // for each head
    };
    IMBREX_KERNEL static void meet_sharers(const warp& self, source here = source::current()) {
        named_barriers<sharers_meet>::template of<sharers_meet>(head_of(self)).sync(self, sharers, here);
    }

    // What the warps that share a head have found out, of which each has some columns of all.
    template <int Kept>
    IMBREX_KERNEL static void put_together(warp& self, decode_sums_of<width_of<Kept>>& all, const result& made,
                                           rooms& shared) {
        const auto sums = pack_rows<Kept>(self, made.sums[0]);
        const auto largest = pack_rows<Kept>(self, made.largest), total = pack_rows<Kept>(self, made.total);
        if constexpr (sharers == 1) {
            all = {sums, largest, total};
        } else {
            constexpr int width = width_of<Kept>;
            const int own = self.index();
            store(self, shared.sums(own).template part<decode_slice, sharers * width>(0), sums);
            store(self, shared.largest[own], largest);
            store(self, shared.total[own], total);
            meet_sharers(self);
            clear(self, all);
            add_slices<sharers>(self, all, sharers, [&](int number, decode_sums_of<width>& one) {
                const int from = number * unit_heads + head_of(self);
                load(self, one.sums, shared.sums(from).template part<decode_slice, width>(0, sharer_of(self) * width));
                load(self, one.largest, shared.largest[from]);
                load(self, one.total, shared.total[from]);
            });
            meet_sharers(self);  // all has been read
        }
    }

    // The warp's columns of its head's rows, of which so many are kept: written; or left for whoever comes last of the blocks that
    // have parts of the unit, who puts them together in the order of the keys.
    template <int Kept>
    IMBREX_KERNEL static void finish(warp& self, const decode_piece& now, const arguments& args, const result& made,
                                     rooms& shared) {
        constexpr int width = width_of<Kept>;
        decode_sums_of<width> all;
        put_together<Kept>(self, all, made, shared);
        if (now.parts > 1) {
            const auto place_of = [&](int part) {
                decode_partial* const place = args.partials + std::int64_t{now.place(part)} * args.sizes.part_slices;
                return reinterpret_cast<decode_partial_of<width>*>(place) + self.index();
            };
            place_of(now.part)->store_from(self, all);
            int* const counter = args.counters + std::int64_t{now.first_block} * count + self.index();
            if (!is_last_to_come(self, counter, now.parts)) return;
            clear(self, all);
            add_slices<Kept == 4 ? 4 : 2>(self, all, now.parts, [&](int part, decode_sums_of<width>& one) {
                place_of(part)->load_to(self, one);
            });
        }
        const int first_column = sharer_of(self) * width;
        for_each_constant<width / decode_slice_width>([&](auto number) {
            constexpr int column = number * decode_slice_width;
            decode_sums one{hw::columns_of<column, decode_slice_width>(self, all.sums, source::current()), all.largest,
                            all.total};
            write_slice<Result, decode_access::in_pairs>(self, args.results, args.lengths,
                                                         {rows_of(now, args), Kept, first_column + column, Depth}, one);
        });
    }
};

}  // namespace imbrex
