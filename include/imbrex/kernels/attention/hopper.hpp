// O = softmax(mask(score(Q K^T))) V on Hopper, with the logarithm of each row's sum of exponentials.
//
//   producer     three warps: one finds out pieces of work, one loads K, a tile of keys at a time, and each piece's Q, one loads V;
//                all go ahead of the consumers as far as there is room in their rings
//   consumers    64 queries each, in step: the tensor cores get the scores of the next keys together with the values of the
//                last ones, and the softmax of these scores runs while the values are still being added
//   turns        the consumers hand the tensor cores to one another, so that one's softmax hides under the other's products
//
//     group 0    [Q K1][P0 V0]  softmax 1      [Q K2][P1 V1]  softmax 2    ...
//     group 1       softmax 0   [Q K1][P0 V0]   softmax 1     [Q K2][P1 V1]
//
// From one piece of work to the next this goes on without a gap: the first scores of a piece come together with the last
// values of the one before, whose result is written after that softmax. The weights P never leave the registers. Keys are
// walked from the last to the first, since a causal mask cuts the last ones; what a mask hides from all queries of a piece
// is not loaded, and only tiles that it cuts are masked.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/pages.hpp>
#include <imbrex/kernels/attention/piece.hpp>
#include <imbrex/kernels/attention/producer.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/schedule.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/write.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/grid/succession.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/pipeline.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_arena.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/tensor.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace imbrex {

template <class In, int KeyDepth, int ValueDepth, class Mask = full_mask, class Score = plain_score,
          attention_shape Shape = attention_shape{}, attention_result Result = attention_result::normalised,
          class Lengths = attention_lengths>
struct attention_hopper {
    using element = In;
    static constexpr bool needs_hopper = true;
    static constexpr bool begins_early = true;
    static constexpr int groups = Shape.groups;
    static constexpr int group_rows = 64;
    static constexpr int rows = groups * group_rows;
    static constexpr int columns = Shape.columns;
    static constexpr int warps = 4 + 4 * groups;
    // A group by a tile that others see. With two groups there is hardly such a tile, and only simple masks are asked.
    static constexpr bool can_pass = groups > 2 && columns < rows&& mask_has_ranges<Mask>() &&
                                     !std::is_same_v<Mask, full_mask>;
    static constexpr int room_for_rings = 2048;

    using q_tile = shared_tile<In, group_rows, KeyDepth>;
    using k_tile = shared_tile<In, columns, KeyDepth>;
    using v_tile = shared_tile<In, columns, ValueDepth>;
    using out_tile = shared_tile<In, group_rows, ValueDepth>;
    using scores = group_tile<float, group_rows, columns>;
    using weights = group_tile<In, group_rows, columns>;
    using sums = group_tile<float, group_rows, ValueDepth>;
    using piece = attention_piece;

    struct arguments {
        tensor<q_tile, 4> q;
        tensor<k_tile, 4> k;
        tensor<v_tile, 4> v;
        tensor<out_tile, 4> out;
        attention_view<In> out_view;
        attention_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        factor_after_score<Score> factor;
        attention_order order;
        Lengths lengths;  // attention_lengths, or paged_lengths
        int heads_per_key_head;
        const float* sinks;  // a logit for each head that takes up weight, or null
        int* counter;        // zero, from which blocks draw their work; or null, and they take it in turn
    };
    struct queries {
        q_tile group[groups];
    };
    // The next piece's queries are loaded beside those of this one, if there is room.
    static constexpr int query_stages = Shape.stages * (sizeof(k_tile) + sizeof(v_tile)) + 2 * sizeof(queries) +
                                                    groups * sizeof(out_tile) + room_for_rings <=
                                                shared_memory_limit
                                            ? 2
                                            : 1;
    struct rings {
        pipeline_barriers<queries, query_stages> q;
        pipeline_barriers<k_tile, Shape.stages> k;
        pipeline_barriers<v_tile, Shape.stages> v;
        transaction_barrier landed;
        tile_queue<4, piece> work;
    };
    struct inputs {
        k_tile keys[Shape.stages];
        v_tile values[Shape.stages];
        queries asked[query_stages];
    };
    // O leaves through memory of its own; if there is no room for it, straight from registers, as results in fp32 do.
    static constexpr bool by_engine = Result == attention_result::normalised &&
                                      sizeof(inputs) + groups * sizeof(out_tile) + sizeof(rings) <= shared_memory_limit;
    struct no_out {};
    struct with_out {
        out_tile tile[groups];
    };
    struct shared_memory : inputs {
        std::conditional_t<by_engine, with_out, no_out> out;
        rings ring;
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        shared.ring.q.init(block, shared.asked, 4 * groups);
        shared.ring.k.init(block, shared.keys, 4 * groups);
        shared.ring.v.init(block, shared.values, 4 * groups);
        shared.ring.landed.init(block, 1);
        shared.ring.work.init(block, 4 * groups + 2);
        fence_barriers(block);
        block.sync();
        wait_for_kernel_before(block);
        allow_next_kernel(block);
        block.roles(single_warps<3, Shape.producer_registers>(
                        "producer", [&](warp& self) { producer::run(self, block, args, shared); }),
                    consumers<groups, Shape.consumer_registers>([&](warpgroup& self) { consume(self, args, shared); }));
    }

  private:
    using producer = attention_producer<attention_hopper>;
    struct turn {
        static constexpr int count = groups;
    };
    using barriers = named_barriers<turn>;

    struct progress {
        scores s;
        weights p;
        sums out;
    };
    // Scores that have a curve are left to the softmax, if it may be relaxed: the curve does without the largest of them.
    static constexpr bool bends = score_has_curve<Score>() && softmax_slack<Result>(Shape.softmax) > 0;
    static constexpr bool judges_all = !score_changes_nothing<Score>() && !bends;
    // Tiles that a mask cuts have a loop apart from the others: who asks at every tile waits for the answer. Where masks or results
    // take more instructions, twice of all would be so many that the compiler makes a function of them.
    static constexpr bool cuts_apart = !judges_all && !bends && !std::is_same_v<Mask, full_mask> &&
                                       mask_has_ranges<Mask>() && Result == attention_result::normalised;
    // With three groups and a mask a relaxed softmax is no faster: registers are short.
    static constexpr bool may_relax = groups <= 2 || std::is_same_v<Mask, full_mask>;
    static constexpr int slack = may_relax || bends ? softmax_slack<Result>(Shape.softmax) : 0;
    using softmax_state = online_softmax<group_rows, warpgroup, slack, (slack > 0 && groups > 2 && !bends)>;
    // When to wait for the values in the middle of a softmax: with three groups the others have more to do meanwhile.
    static constexpr softmax_pause pause =
        groups > 2 ? softmax_pause::when_largest_are_known : softmax_pause::in_first_row;

    IMBREX_KERNEL static void consume(warpgroup& self, const arguments& args, shared_memory& shared) {
        // The first turn is the first group's. One arrival is left over at the end, which nobody needs.
        if (self.index() == groups - 1) end_turn(self);
        auto pieces = shared.ring.work.read(self);
        auto q = shared.ring.q.consumer(self, shared.asked);
        auto k = shared.ring.k.consumer(self, shared.keys);
        auto v = shared.ring.v.consumer(self, shared.values);

        progress at;
        const auto begin_scores = [&](auto& asked, auto& key) {
            begin_turn(self);
            mma_abt_async(self, at.s, asked, *key, accumulation::replace);
        };
        const auto begin_values = [&] {
            auto value = v.wait_in_step();
            mma_ab_async(self, at.out, at.p, *value);
            return value;
        };
        const auto nothing_before = [](const auto&) {};
        const auto end_values = [&](auto& value) {
            wait_mma(self, at.out);
            value.release();
        };
        // The last tile of a piece, if this group sees nothing of it, passes by: its keys here, its values when those before are
        // on their way. Without a branch, after which the compiler would not know any more that all lanes go in step.
        const auto pass_keys = [&](const auto& one, int& tiles) {
            if constexpr (can_pass) {
                const bool passes = piece::skips(one.get(&piece::skipped), self.index());
                pass_turn_if(self, passes);
                k.pass_in_step_if(passes);
                tiles -= passes ? 1 : 0;
                return passes;
            } else {
                return false;
            }
        };
        const auto pass_values = [&](bool passes) {
            if constexpr (can_pass) v.pass_in_step_if(passes);
        };
        // Left in its ring, and read again where it is needed, what is needed of it: registers are what limits the tiles' columns.
        auto place = next_with_keys(self, args, pieces);
        if (!piece::has_keys_in(place)) return;
        int tiles = place.get(&piece::tiles);
        pass_values(pass_keys(place, tiles));
        softmax_state softmax = fresh_softmax(self, args);
        auto query = q.wait();
        {
            auto key = k.wait_in_step();
            begin_scores(query.again().group[self.index()], key);
            end_turn(self);
            wait_mma(self, at.s);
        }
        judge(self, place, args, at.s, tiles - 1);
        bend(self, args, at.s);
        softmax.weigh(self, at.s, nothing_before);
        convert(self, at.p, at.s);
        fill(self, at.out, 0.0f);

        while (true) {
            auto& asked = query.again().group[self.index()];
            const auto step = [&](int tile, auto judged) {
                auto key = k.wait_in_step();
                begin_scores(asked, key);
                auto value = begin_values();
                end_turn(self);
                wait_mma<1>(self, at.s);
                key.release();
                if constexpr (query_stages == 1) query.release_if(tile == 0);
                if constexpr (judged) {
                    if (judges_all || cuts_apart || !place.get(&piece::whole).has(tile))
                        judge(self, place, args, at.s, tile);
                }
                hw::row_fragment<float, group_rows, warpgroup::warps> factors;
                fill(self, factors, 1.0f);
                const auto note = [&](const auto& told) { factors = told; };
                if constexpr (bends) {
                    softmax.template weigh_bent<pause>(self, at.s, args.factor, bend_of(args), note);
                } else {
                    softmax.template weigh<pause>(self, at.s, note);
                }
                end_values(value);
                convert(self, at.p, at.s);
                rescale(self, at.out, factors);
            };
            constexpr std::true_type to_judge;
            constexpr std::false_type seen_whole;
            int tile = tiles - 2;
            if constexpr (cuts_apart) {
                while (tile >= 0) {
                    int first_whole = 0;
                    for (; tile >= 0; --tile) {
                        const tile_range whole = place.get(&piece::whole);
                        first_whole = whole.first;
                        if (whole.has(tile)) break;
                        step(tile, to_judge);
                    }
                    for (; tile >= first_whole; --tile) step(tile, seen_whole);
                }
            } else if constexpr (judges_all || !std::is_same_v<Mask, full_mask>) {
                for (; tile >= 0; --tile) step(tile, to_judge);
            } else {
                for (; tile >= 0; --tile) step(tile, seen_whole);
            }
            if constexpr (query_stages == 1) {
                query.release();  // if the last tile has not
            } else {
                query.release_if(true);  // which asks nothing
            }
            auto next_place = next_with_keys(self, args, pieces);
            tiles = next_place.get(&piece::tiles);
            if (tiles == 0) break;
            softmax_state following = fresh_softmax(self, args);
            const bool passes = pass_keys(next_place, tiles);
            query = q.wait();
            auto key = k.wait_in_step();
            begin_scores(query.again().group[self.index()], key);
            auto value = begin_values();
            end_turn(self);
            pass_values(passes);
            wait_mma<1>(self, at.s);
            key.release();
            judge(self, next_place, args, at.s, tiles - 1);
            bend(self, args, at.s);
            following.template weigh<pause>(self, at.s, nothing_before);
            end_values(value);
            convert(self, at.p, at.s);
            write(self, place, args, shared, at.out, softmax);
            fill(self, at.out, 0.0f);
            softmax = following;
            place = std::move(next_place);
        }
        auto value = begin_values();
        end_values(value);
        write(self, place, args, shared, at.out, softmax);
        wait_stores_read(self);
    }

    IMBREX_KERNEL static constexpr named_barrier turn_of(int group) {
        return barriers::template of<turn>(group % groups);
    }
    IMBREX_KERNEL static void begin_turn(const warpgroup& self, source here = source::current()) {
        if constexpr (Shape.turns) turn_of(self.index()).sync(self, 8, here);
    }
    IMBREX_KERNEL static void end_turn(const warpgroup& self, source here = source::current()) {
        if constexpr (Shape.turns) turn_of(self.index() + 1).arrive(self, 8, here);
    }
    IMBREX_KERNEL static void pass_turn_if(const warpgroup& self, bool wanted, source here = source::current()) {
        if constexpr (Shape.turns) turn_of(self.index()).pass_to_if(self, turn_of(self.index() + 1), 8, wanted, here);
    }

    // With three groups, whose values have few columns, it is quicker to multiply always than to ask first.
    IMBREX_KERNEL static void rescale(warpgroup& self, sums& out,
                                      const hw::row_fragment<float, group_rows, warpgroup::warps>& factors) {
        if constexpr (groups > 2 && slack == 0) {
            combine_with_rows(self, out, factors, multiply{});
        } else {
            rescale_rows(self, out, factors);
        }
    }

    template <class Held>
    IMBREX_KERNEL static void judge(warpgroup& self, const Held& held, const arguments& args, scores& s, int tile) {
        const piece now = held.get();
        const int first_query = now.queries.first + self.index() * group_rows;
        const int first_key = (now.first_tile + tile) * columns;
        if constexpr (bends) {
            mask_scores(self, s, now, first_query, first_key, args.mask);
        } else {
            judge_scores(self, s, now, first_query, first_key, args.mask, args.score, args.scale);
        }
    }

    // What becomes of a product where its score has a curve: it does not matter where it stands.
    IMBREX_KERNEL static auto bend_of(const arguments& args) {
        return [&args](float product) { return args.score.in_units({}, 0, 0, product, args.scale); };
    }
    IMBREX_KERNEL static void bend(warpgroup& self, const arguments& args, scores& s) {
        if constexpr (bends) map(self, s, bend_of(args));
    }

    template <class Held>
    IMBREX_KERNEL static attention_place place_of(const warpgroup& self, const Held& held, const arguments& args) {
        const attention_sequence sequence = held.get(&piece::sequence);
        const int first = self.index() * group_rows;
        return {args.lengths.member(sequence.batch), sequence.head, held.get(&piece::first_row) + first,
                sequence.queries - held.get(&piece::queries).first - first};
    }

    IMBREX_KERNEL static softmax_state fresh_softmax(const warpgroup& self, const arguments& args) {
        return {self, args.factor};
    }

    // The next piece of work that has keys, in the ring; those that have none are answered on the way. If no piece is left, one
    // without keys.
    template <class Pieces>
    IMBREX_KERNEL static auto next_with_keys(warpgroup& self, const arguments& args, Pieces& pieces) {
        while (true) {
            auto held = pieces.hold();
            if (piece::has_keys_in(held) || held.get(&piece::queries).first >= held.get(&piece::sequence).queries)
                return held;
            const attention_place place = place_of(self, held, args);
            if (place.exist <= 0) continue;
            write_nothing<Result, ValueDepth>(self, args.outputs, args.out_view, place, fresh_softmax(self, args),
                                              args.sinks);
        }
    }

    template <class Held>
    IMBREX_KERNEL static void write(warpgroup& self, const Held& held, const arguments& args, shared_memory& shared,
                                    sums& out, softmax_state& softmax) {
        const attention_place place = place_of(self, held, args);
        if (place.exist <= 0) return;
        if constexpr (by_engine) {
            // Behind the last rows of a packed sequence there are another's, which the copy engine would overwrite.
            if (!args.lengths.packed() || place.exist >= group_rows) {
                finish_attention(self, out, softmax, args.sinks, place.head);
                write_log2_sums(self, args.outputs, place, softmax);
                wait_stores_read(self);
                self.sync();
                store(self, shared.out.tile[self.index()], to<In>(self, out));
                fence_async(self);
                self.sync();
                store_async(self, args.out.at(place.batch, place.head, place.row, 0), shared.out.tile[self.index()]);
                commit_stores(self);
                return;
            }
        }
        write_rows<Result, ValueDepth>(self, args.outputs, args.out_view, place, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
