// What a consumer of an attention's Hopper kernel does, a warpgroup with 64 queries: scores and values by turns with the others,
// softmax meanwhile, one piece of work after another without a gap (hopper.hpp has the picture). Registers are what limits it, and
// its loops are as quick as the compiler finds an order for them: docs/results/attention.md tells what was tried.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/piece.hpp>
#include <imbrex/kernels/attention/result.hpp>
#include <imbrex/kernels/attention/score.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/write.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/register/softmax_bent.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

template <class Kernel>
struct attention_consumer {
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using element = typename Kernel::element;
    using mask_type = typename Kernel::mask_type;
    using score_type = typename Kernel::score_type;
    using piece = attention_piece;
    static constexpr attention_shape shape = Kernel::shape;
    static constexpr attention_result result = Kernel::result;
    static constexpr int columns = Kernel::columns;
    static constexpr int groups = Kernel::groups;
    static constexpr int group_rows = Kernel::group_rows;
    static constexpr int value_depth = Kernel::value_depth;
    static constexpr int query_stages = Kernel::query_stages;
    static constexpr bool can_pass = Kernel::can_pass;
    static constexpr bool can_rest = Kernel::can_rest;
    static constexpr bool by_engine = Kernel::by_engine;
    using scores = group_tile<float, group_rows, columns>;
    using weights = group_tile<element, group_rows, columns>;
    using sums = group_tile<float, group_rows, value_depth>;

    IMBREX_KERNEL static void run(warpgroup& self, const arguments& args, shared_memory& shared) {
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
                [[maybe_unused]] const auto ahead = look_ahead(self, softmax);
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
                if constexpr (in_turn) {
                    softmax.weigh_in_turn(
                        self, at.s, ahead, [&] { end_values(value); }, note);
                } else {
                    if constexpr (bends) {
                        softmax.template weigh_bent<pause>(self, at.s, args.factor, bend_of(args), note);
                    } else if constexpr (looks_ahead) {
                        softmax.template weigh<pause>(self, at.s, ahead, note);
                    } else {
                        softmax.template weigh<pause>(self, at.s, note);
                    }
                    end_values(value);
                }
                convert(self, at.p, at.s);
                rescale(self, at.out, factors);
            };
            constexpr std::true_type to_judge;
            constexpr std::false_type seen_whole;
            int tile = tiles - 2;
            if constexpr (can_rest) {
                // Asked again each time: kept in a register, it would be one too many. And the wait for values is last, though who has
                // had its turn need not wait: most other forms make the loop that follows 2 to 5% slower.
                for (; piece::rests(place.get(&piece::skipped), self.index()) && tile >= 0; --tile) {
                    k.pass_in_step_if(true);
                    pass_turn_if(self, true);
                    v.pass_in_step_if(true);
                }
            }
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
            } else if constexpr (judges_all || !without_mask) {
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

  private:
    struct turn {
        static constexpr int count = groups;
    };
    using barriers = named_barriers<turn>;

    struct nothing {};
    struct progress {
        scores s;
        weights p;
        sums out;
    };
    static constexpr bool normalised = result == attention_result::normalised;
    static constexpr bool without_mask = std::is_same_v<mask_type, full_mask>;
    // With three groups registers are short: a relaxed softmax under a mask must have little else to keep.
    static constexpr bool may_relax = groups <= 2 || without_mask || (normalised && mask_has_ranges<mask_type>());
    static constexpr int slack = may_relax ? softmax_slack<result>(shape.softmax) : 0;
    // Scores that have a curve are left to the softmax, if it may be relaxed: the curve does without the largest of them.
    static constexpr bool bends = score_has_curve<score_type>() && slack > 0;
    static constexpr bool judges_all = !score_changes_nothing<score_type>() && !bends;
    // Tiles that a mask cuts have a loop apart from the others: who asks at every tile waits for the answer. Where masks or results
    // take more instructions, twice of all would be so many that the compiler makes a function of them.
    static constexpr bool cuts_apart =
        !judges_all && !bends && !without_mask && mask_has_ranges<mask_type>() && normalised;
    using softmax_state = std::conditional_t<bends, bent_softmax<group_rows, warpgroup, slack>,
                                             online_softmax<group_rows, warpgroup, slack, (slack > 0 && groups > 2)>>;
    // One of a thread's rows after the other: 2% faster with two groups and no mask, and 2% slower under one.
    static constexpr bool in_turn = groups == 2 && without_mask && !judges_all && !bends && normalised;
    // The largest scores in fewer instructions, where that is faster: by 3% with two groups and a mask, by 2% with three groups. It is
    // not where all scores are changed (4% slower), and a relaxed softmax gains by it (3%) only without a mask.
    static constexpr bool looks_ahead =
        normalised && !judges_all && !bends && (slack == 0 ? groups > 2 || cuts_apart || in_turn : without_mask);
    // Multiplying always is quicker than asking first where values have few columns or a mask has a loop of its own, and 3% slower
    // with 256 columns of values.
    static constexpr bool rescales_always =
        slack == 0 && (groups > 2 ? value_depth <= 64 : cuts_apart && value_depth <= 128);
    // When to wait for the values in the middle of a softmax: with three groups the others have more to do meanwhile. Who has no
    // register left to wait with waits when it is over.
    static constexpr softmax_pause pause = groups <= 2                  ? softmax_pause::in_first_row
                                           : slack > 0 && !without_mask ? softmax_pause::never
                                                                        : softmax_pause::when_largest_are_known;

    IMBREX_KERNEL static constexpr named_barrier turn_of(int group) {
        return barriers::template of<turn>(group % groups);
    }
    IMBREX_KERNEL static void begin_turn(const warpgroup& self, source here = source::current()) {
        if constexpr (shape.turns) turn_of(self.index()).sync(self, 8, here);
    }
    IMBREX_KERNEL static void end_turn(const warpgroup& self, source here = source::current()) {
        if constexpr (shape.turns) turn_of(self.index() + 1).arrive(self, 8, here);
    }
    IMBREX_KERNEL static void pass_turn_if(const warpgroup& self, bool wanted, source here = source::current()) {
        if constexpr (shape.turns) turn_of(self.index()).pass_to_if(self, turn_of(self.index() + 1), 8, wanted, here);
    }

    IMBREX_KERNEL static auto look_ahead(const warpgroup& self, const softmax_state& softmax) {
        if constexpr (looks_ahead) {
            return softmax.look_ahead(self);
        } else {
            return nothing{};
        }
    }

    IMBREX_KERNEL static void rescale(warpgroup& self, sums& out,
                                      const hw::row_fragment<float, group_rows, warpgroup::warps>& factors) {
        if constexpr (rescales_always) {
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
        const query_range queries = held.get(&piece::queries);
        const int first = self.index() * group_rows;
        return {args.lengths.member(sequence.batch), sequence.head, held.get(&piece::first_row) + first,
                queries.end - queries.first - first};
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
            write_nothing<result, value_depth>(self, args.outputs, args.out_view, place, fresh_softmax(self, args),
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
                store(self, shared.out.tile[self.index()], to<element>(self, out));
                fence_async(self);
                self.sync();
                store_async(self, args.out.at(place.batch, place.head, place.row, 0), shared.out.tile[self.index()]);
                commit_stores(self);
                return;
            }
        }
        write_rows<result, value_depth>(self, args.outputs, args.out_view, place, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
