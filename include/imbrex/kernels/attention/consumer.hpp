// Consumer warpgroup of the Hopper attention kernel: 64 query rows, WGMMA for Q K^T and P V, online softmax in between
// (hopper.hpp has the diagram). For ping-pong scheduling, a warpgroup order barrier hands the tensor cores from one
// warpgroup to the next. The kernel is limited by registers, and the speed of the main loop depends on the instruction
// order that the compiler finds: tuning.hpp lists the decisions, docs/lab/attention.md what else was tried.
//
// That order depends even on the form of the code: cursors and register tiles as members of an object instead of locals
// of `run`, or the loop over key tiles in a function, gave other machine code. Compare cubins after a change.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/cache_scaling.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/kernels/attention/hopper_softmax.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/softcap_softmax.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/mma.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

template <class Kernel>
class attention_consumer {
  protected:
    using tuning = typename Kernel::tuning;
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using element = typename Kernel::element;
    using out_element = typename Kernel::out_element;
    using work_tile = attention_work_tile;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int consumer_warpgroups = Kernel::consumer_warpgroups;
    static constexpr int warpgroup_rows = Kernel::warpgroup_rows;
    static constexpr int head_dim_v = Kernel::head_dim_v;
    static constexpr int q_stages = Kernel::q_stages;
    // Whether a tile may need modify_and_mask.
    using masked_tile = std::true_type;
    using unmasked_tile = std::false_type;
    using any_tile =
        std::bool_constant<tuning::modify_all_tiles || !std::is_same_v<typename Kernel::mask_type, full_mask>>;

    using scores = warpgroup_tile<float, warpgroup_rows, block_n>;
    using probabilities = warpgroup_tile<attention_probability<Kernel>, warpgroup_rows, block_n>;
    using accumulator = warpgroup_tile<float, warpgroup_rows, head_dim_v>;
    using row_factors = hw::row_fragment<float, warpgroup_rows, warpgroup::warps>;
    using softmax_state = std::conditional_t<
        tuning::softcap_by_polynomial, online_softcap_softmax<warpgroup_rows, warpgroup, tuning::rescale_threshold>,
        hopper_softmax<warpgroup_rows, warpgroup, tuning::rescale_threshold, tuning::vote_before_row_max>>;

    struct register_tiles {
        scores s;
        probabilities p;
        accumulator out;
    };

    struct order_barriers {
        static constexpr int count = consumer_warpgroups;
    };
    using barriers = named_barriers<order_barriers>;
    struct nothing {};
    static constexpr auto no_output_yet = [](const auto&) {};

  public:
    IMBREX_KERNEL static void run(warpgroup& self, const arguments& args, shared_memory& shared) {
        // Ping-pong: warpgroup 0 goes first. One arrival is left over at the end, which is harmless.
        if (self.index() == consumer_warpgroups - 1) arrive_for_next(self);
        auto work_tiles = shared.ring.work.read(self);
        auto q = shared.ring.q.consumer(self, shared.queries);
        auto k = shared.ring.k.consumer(self, shared.keys);
        auto v = shared.ring.v.consumer(self, shared.values);
        register_tiles at;

        // The first scores of the first work tile. A work tile stays in its pipeline stage, and fields are read from
        // shared memory where they are needed: registers limit block_n.
        auto current = next_with_keys(self, args, work_tiles, fresh_softmax(self, args));
        if (!work_tile::has_keys_in(current)) return;
        int tiles = current.get(&work_tile::tiles);
        skip_last_values_if(v, skip_last_keys(self, current, k, tiles));
        softmax_state softmax = fresh_softmax(self, args, current);
        auto query = q.wait();
        compute_first_scores(self, at, query, k);
        modify_and_mask_first(self, current, args, at.s, tiles - 1);
        softmax.exp_and_sum(self, at.s, no_output_yet);
        convert(self, at.p, at.s);
        fill(self, at.out, 0.0f);

        while (true) {
            // The other key tiles, from the last to the first. Partially masked ones may have a loop of their own.
            auto& q_tile = query.uniform_stage().group[self.index()];
            const auto step_at = [&](int tile, auto masked) {
                step(self, args, at, q_tile, query, k, v, softmax, current, tile, masked);
            };
            int tile = tiles - 2;
            skip_tiles_if_idle(self, current, k, v, tile);
            if constexpr (tuning::separate_masked_loop) {
                while (tile >= 0) {
                    int first_unmasked = 0;
                    for (; tile >= 0; --tile) {
                        const tile_range unmasked = current.get(&work_tile::unmasked);
                        first_unmasked = unmasked.first;
                        if (unmasked.has(tile)) break;
                        step_at(tile, masked_tile{});
                    }
                    for (; tile >= first_unmasked; --tile) step_at(tile, unmasked_tile{});
                }
            } else {
                for (; tile >= 0; --tile) step_at(tile, any_tile{});
            }
            release_query(query);

            // The first scores of the next work tile, together with the last P V of this one.
            auto next = next_with_keys(self, args, work_tiles, fresh_softmax(self, args));
            tiles = next.get(&work_tile::tiles);
            if (tiles == 0) break;
            softmax_state following = fresh_softmax(self, args, next);
            const bool skipping = skip_last_keys(self, next, k, tiles);
            query = q.wait();
            auto key = k.wait_converged();
            begin_scores(self, at.s, query.uniform_stage().group[self.index()], *key);
            auto value = begin_values(self, at, v);
            arrive_for_next(self);
            skip_last_values_if(v, skipping);
            wait_mma<1>(self, at.s);
            key.release();
            modify_and_mask_first(self, next, args, at.s, tiles - 1);
            following.template exp_and_sum<tuning::wait_point>(self, at.s, no_output_yet);
            end_values(self, at, value);
            convert(self, at.p, at.s);
            write(self, current, args, shared, at.out, softmax);
            fill(self, at.out, 0.0f);
            softmax = following;
            current = std::move(next);
        }
        auto value = begin_values(self, at, v);
        end_values(self, at, value);
        write(self, current, args, shared, at.out, softmax);
        wait_stores_read(self);
    }

  protected:
    // The tile body: the scores of a key tile together with P V of the tile before, which the softmax of the scores
    // overlaps. `masked`: the tile may need modify_and_mask.
    template <class QTile, class Query, class Keys, class Values, class Held, class Masked>
    IMBREX_KERNEL static void step(warpgroup& self, const arguments& args, register_tiles& at, QTile& q_tile,
                                   Query& query, Keys& k, Values& v, softmax_state& softmax, const Held& current,
                                   int tile, Masked masked) {
        auto key = k.wait_converged();
        begin_scores(self, at.s, q_tile, *key);
        auto value = begin_values(self, at, v);
        arrive_for_next(self);
        const auto sign = check_row_max_sign(self, softmax);
        wait_mma<1>(self, at.s);
        key.release();
        if constexpr (q_stages == 1) query.release_if(tile == 0);
        if constexpr (masked) modify_and_mask_if_partial(self, current, args, at.s, tile);
        row_factors factors;
        fill(self, factors, 1.0f);
        const auto note = [&](const auto& reported) { factors = reported; };
        exp_and_sum(self, args, at.s, softmax, sign, note, [&] { end_values(self, at, value); });
        convert(self, at.p, at.s);
        rescale(self, at.out, factors);
    }

    // The very first scores: there is no P V before them.
    template <class Query, class Keys>
    IMBREX_KERNEL static void compute_first_scores(warpgroup& self, register_tiles& at, const Query& query, Keys& k) {
        auto key = k.wait_converged();
        begin_scores(self, at.s, query.uniform_stage().group[self.index()], *key);
        arrive_for_next(self);
        wait_mma(self, at.s);
    }
    template <class QTile, class KTile>
    IMBREX_KERNEL static void begin_scores(warpgroup& self, scores& s, const QTile& q_tile, const KTile& k_tile) {
        wait_for_order(self);
        mma_abt_async(self, s, q_tile, k_tile, accumulation::replace);
    }
    template <class Values>
    IMBREX_KERNEL static auto begin_values(warpgroup& self, register_tiles& at, Values& v) {
        auto value = v.wait_converged();
        mma_ab_async(self, at.out, at.p, *value);
        return value;
    }
    template <class Value>
    IMBREX_KERNEL static void end_values(warpgroup& self, register_tiles& at, Value& value) {
        wait_mma(self, at.out);
        value.release();
    }
    template <class Query>
    IMBREX_KERNEL static void release_query(Query& query) {
        if constexpr (q_stages == 1) {
            query.release();  // unless the last tile did
        } else {
            query.release_if(true);  // unconditional
        }
    }

    // Skips the last key tile of a work tile if this warpgroup sees none of it: K here, V once the P V product before it
    // has been issued. Branch-free: after a branch the compiler no longer treats the warpgroup as converged.
    template <class Held, class Keys>
    IMBREX_KERNEL static bool skip_last_keys(const warpgroup& self, const Held& held, Keys& k, int& tiles) {
        if constexpr (tuning::can_skip_last_tile) {
            const bool skipping = work_tile::skips(held.get(&work_tile::skipped), self.index());
            skip_order_if(self, skipping);
            k.skip_converged_if(skipping);
            tiles -= skipping ? 1 : 0;
            return skipping;
        } else {
            return false;
        }
    }
    template <class Values>
    IMBREX_KERNEL static void skip_last_values_if(Values& v, bool skipping) {
        if constexpr (tuning::can_skip_last_tile) v.skip_converged_if(skipping);
    }

    // An idle warpgroup skips the key tiles from `tile` down to 0. Whether it is idle is read from shared memory in each
    // iteration: one more live register is too many. The wait for V comes last although the order barrier does not
    // depend on it: most other forms make the loop that follows 2 to 5% slower.
    template <class Held, class Keys, class Values>
    IMBREX_KERNEL static void skip_tiles_if_idle(const warpgroup& self, const Held& held, Keys& k, Values& v,
                                                 int& tile) {
        if constexpr (tuning::can_idle) {
            for (; work_tile::is_idle(held.get(&work_tile::skipped), self.index()) && tile >= 0; --tile) {
                k.skip_converged_if(true);
                skip_order_if(self, true);
                v.skip_converged_if(true);
            }
        }
    }

    IMBREX_KERNEL static softmax_state fresh_softmax(const warpgroup& self, const arguments& args) {
        return {self, args.scale_log2};
    }
    // For the head of a work tile.
    template <class Held>
    IMBREX_KERNEL static softmax_state fresh_softmax(const warpgroup& self, const arguments& args, const Held& held) {
        return {self, scale_log2_of(args, [&] { return held.get(&work_tile::sequence).head; })};
    }
    IMBREX_KERNEL static auto check_row_max_sign(const warpgroup& self, const softmax_state& softmax) {
        if constexpr (tuning::integer_row_max) {
            return softmax.check_row_max_sign(self);
        } else {
            return nothing{};
        }
    }
    // Scores become probabilities. `rescale` receives the factors of the output's rows, `end_values` ends P V.
    template <class Sign, class Rescale, class EndValues>
    IMBREX_KERNEL static void exp_and_sum(warpgroup& self, const arguments& args, scores& s, softmax_state& softmax,
                                          [[maybe_unused]] const Sign& sign, const Rescale& rescale,
                                          const EndValues& end_values) {
        if constexpr (tuning::row_by_row) {
            softmax.exp_and_sum_row_by_row(self, s, sign, end_values, rescale);
        } else {
            if constexpr (tuning::softcap_by_polynomial) {
                softmax.template exp_and_sum_softcap<tuning::wait_point>(self, s, args.scale_log2, softcap_of(args),
                                                                         rescale);
            } else if constexpr (tuning::integer_row_max) {
                softmax.template exp_and_sum<tuning::wait_point>(self, s, sign, rescale);
            } else {
                softmax.template exp_and_sum<tuning::wait_point>(self, s, rescale);
            }
            end_values();
        }
    }
    IMBREX_KERNEL static void rescale(warpgroup& self, accumulator& out, const row_factors& factors) {
        if constexpr (tuning::rescale_without_vote) {
            combine_with_rows(self, out, factors, functional::multiply{});
        } else {
            rescale_rows(self, out, factors);
        }
    }

    IMBREX_KERNEL static constexpr named_barrier order_barrier_of(int group) {
        return barriers::template of<order_barriers>(group % consumer_warpgroups);
    }
    IMBREX_KERNEL static void wait_for_order(const warpgroup& self, source here = source::current()) {
        if constexpr (tuning::pingpong) order_barrier_of(self.index()).sync(self, 8, here);
    }
    IMBREX_KERNEL static void arrive_for_next(const warpgroup& self, source here = source::current()) {
        if constexpr (tuning::pingpong) order_barrier_of(self.index() + 1).arrive(self, 8, here);
    }
    IMBREX_KERNEL static void skip_order_if(const warpgroup& self, bool wanted, source here = source::current()) {
        if constexpr (tuning::pingpong)
            order_barrier_of(self.index())
                .sync_and_arrive_if(self, order_barrier_of(self.index() + 1), 8, wanted, here);
    }

    template <class Held>
    IMBREX_KERNEL static void modify_and_mask(warpgroup& self, const Held& held, const arguments& args, scores& s,
                                              int tile) {
        const work_tile now = held.get();
        const int first_query = now.queries.first + self.index() * warpgroup_rows;
        const int first_key = (now.first_tile + tile) * block_n;
        if constexpr (tuning::softcap_by_polynomial) {
            mask_scores(self, s, now, first_query, first_key, args.mask);
        } else {
            apply_score_mod_and_mask(self, s, now, first_query, first_key, args.mask, args.score,
                                     score_scale_of(args, now.sequence.head));
        }
    }
    template <class Held>
    IMBREX_KERNEL static void modify_and_mask_if_partial(warpgroup& self, const Held& held, const arguments& args,
                                                         scores& s, int tile) {
        if (tuning::modify_all_tiles || tuning::separate_masked_loop || !held.get(&work_tile::unmasked).has(tile))
            modify_and_mask(self, held, args, s, tile);
    }
    // The first tile of a work tile has no row maximum yet: no polynomial.
    template <class Held>
    IMBREX_KERNEL static void modify_and_mask_first(warpgroup& self, const Held& held, const arguments& args, scores& s,
                                                    int tile) {
        modify_and_mask(self, held, args, s, tile);
        if constexpr (tuning::softcap_by_polynomial) map(self, s, softcap_of(args));
    }
    // The softcap of a product, before the output scale. It does not depend on positions.
    IMBREX_KERNEL static auto softcap_of(const arguments& args) {
        return [&args](float product) { return args.score.unscaled({}, 0, 0, product, args.scale); };
    }

    template <class Held>
    IMBREX_KERNEL static attention_output_coord output_coord_of(const warpgroup& self, const Held& held,
                                                                const arguments& args) {
        const attention_extents sequence = held.get(&work_tile::sequence);
        const query_range queries = held.get(&work_tile::queries);
        const int first = self.index() * warpgroup_rows;
        return {args.lengths.member(sequence.batch), sequence.head, held.get(&work_tile::first_row) + first,
                queries.end - queries.first - first};
    }

    // The next work tile with keys, held in its pipeline stage. Work tiles without keys get their empty output on the
    // way. After the last work tile, returns one without keys. `fresh` is a softmax that has seen nothing.
    template <class WorkTiles, class Softmax>
    IMBREX_KERNEL static auto next_with_keys(warpgroup& self, const arguments& args, WorkTiles& work_tiles,
                                             const Softmax& fresh) {
        while (true) {
            auto held = work_tiles.hold();
            if (work_tile::has_keys_in(held) ||
                held.get(&work_tile::queries).first >= held.get(&work_tile::sequence).seqlen_q)
                return held;
            const attention_output_coord at = output_coord_of(self, held, args);
            if (at.valid_rows <= 0) continue;
            store_empty_output<Kernel::output_mode, head_dim_v>(self, args.outputs, args.out_view, at, fresh,
                                                                args.sinks);
        }
    }

    struct whole_tile {
        template <class Tile>
        IMBREX_KERNEL Tile& operator()(Tile& tile) const {
            return tile;
        }
    };
    // `staged(tile)` is where to store the output in shared memory.
    template <class Held, class Softmax, class Staged = whole_tile>
    IMBREX_KERNEL static void write(warpgroup& self, const Held& held, const arguments& args, shared_memory& shared,
                                    accumulator& out, Softmax& softmax, const Staged& staged = {}) {
        const attention_output_coord at = output_coord_of(self, held, args);
        if (at.valid_rows <= 0) return;
        apply_value_scale(self, args, out, at.head);
        if constexpr (Kernel::by_tma) {
            // A TMA store of a partial tile would overwrite the next sequence of a varlen batch.
            if (!args.lengths.varlen() || at.valid_rows >= warpgroup_rows) {
                finish_attention(self, out, softmax, args.sinks, at.head);
                store_lse2(self, args.outputs, at, softmax);
                wait_stores_read(self);
                self.sync();
                store(self, staged(shared.out.tile[self.index()]), convert_to<out_element>(self, out));
                fence_async(self);
                self.sync();
                store_async(self, args.out.at(at.batch, at.head, at.row, 0), shared.out.tile[self.index()]);
                commit_stores(self);
                return;
            }
        }
        store_output<Kernel::output_mode, head_dim_v>(self, args.outputs, args.out_view, at, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
