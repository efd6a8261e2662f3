// Consumer warpgroup of the 8-bit attention kernel: the loop of attention/consumer.hpp, with the scales of Q, K and V,
// P in e4m3, and the output summed by attention_output_sum. As there, the form of the code changes the instruction
// order that the compiler finds: compare timings after a change.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/consumer.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/kernels/attention_fp8/output_sum.hpp>
#include <imbrex/kernels/attention_fp8/softmax.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warpgroup/accumulator_order.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

template <class Kernel>
class attention_fp8_consumer : attention_consumer<Kernel> {
    using base = attention_consumer<Kernel>;
    using tuning = typename Kernel::tuning;
    using arguments = typename Kernel::arguments;
    using shared_memory = typename Kernel::shared_memory;
    using work_tile = attention_work_tile;
    using scores = typename base::scores;
    using row_factors = typename base::row_factors;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int consumer_warpgroups = Kernel::consumer_warpgroups;
    static constexpr int warpgroup_rows = Kernel::warpgroup_rows;
    static constexpr bool scales_by_block = Kernel::scaling::kv_block != 0;

    using softmax_state = fp8_softmax<warpgroup_rows, warpgroup>;
    using probabilities = accumulator_order_tile<e4m3, warpgroup_rows, block_n>;
    using output_sum = std::conditional_t<
        Kernel::promotes_in_shared,
        attention_shared_output_sum<warpgroup_rows, Kernel::head_dim_v, tuning::rescale_without_vote, scales_by_block>,
        attention_output_sum<Kernel::accumulation, warpgroup_rows, Kernel::head_dim_v, Kernel::product_columns,
                             tuning::rescale_without_vote>>;
    static_assert(output_sum::parts == 1 || output_sum::parts == 2 || output_sum::parts == 4,
                  "imbrex: a promoted product has 1, 2 or 4 parts");

    struct register_tiles {
        scores s;
        probabilities p;
        output_sum o;
    };
    static constexpr auto no_output_yet = [](const auto&) {};
    // The compiler would compute the addresses of the output before the main loop, which has no registers for them.
    struct staged_late {
        template <class Tile>
        IMBREX_KERNEL auto operator()(Tile& tile) const {
            return tile.template subtile<Tile::rows>(hw::opaque(0));
        }
    };

  public:
    IMBREX_KERNEL static void run(warpgroup& self, const arguments& args, shared_memory& shared) {
        if (self.index() == consumer_warpgroups - 1) base::arrive_for_next(self);
        auto work_tiles = shared.ring.work.read(self);
        auto q = shared.ring.q.consumer(self, shared.queries);
        auto k = shared.ring.k.consumer(self, shared.keys);
        auto v = shared.ring.v.consumer(self, shared.values);
        register_tiles at;

        // The first scores of the first work tile.
        auto current = base::next_with_keys(self, args, work_tiles, softmax_state(self));
        if (!work_tile::has_keys_in(current)) return;
        int tiles = current.get(&work_tile::tiles);
        base::skip_last_values_if(v, base::skip_last_keys(self, current, k, tiles));
        softmax_state softmax(self);
        auto query = q.wait();
        float q_scale = q_scale_of(self, query);
        const float first_scale = compute_first_scores(self, at, query, q_scale, k, softmax);
        exp_and_sum_first(self, args, at.s, softmax, current, first_scale, tiles - 1);
        convert(self, at.p, at.s);
        at.o.clear(self);

        while (true) {
            // The other key tiles, from the last to the first. Partially masked ones may have a loop of their own.
            auto& q_tile = query.uniform_stage().group[self.index()];
            const auto step_at = [&](int tile, auto masked) {
                step(self, args, shared, at, q_tile, query, q_scale, k, v, softmax, current, tile, masked);
            };
            int tile = tiles - 2;
            base::skip_tiles_if_idle(self, current, k, v, tile);
            if constexpr (tuning::separate_masked_loop) {
                while (tile >= 0) {
                    int first_unmasked = 0;
                    for (; tile >= 0; --tile) {
                        const tile_range unmasked = current.get(&work_tile::unmasked);
                        first_unmasked = unmasked.first;
                        if (unmasked.has(tile)) break;
                        step_at(tile, typename base::masked_tile{});
                    }
                    for (; tile >= first_unmasked; --tile) step_at(tile, typename base::unmasked_tile{});
                }
            } else {
                for (; tile >= 0; --tile) step_at(tile, typename base::any_tile{});
            }
            base::release_query(query);

            // The first scores of the next work tile, together with the last P V of this one.
            auto next = base::next_with_keys(self, args, work_tiles, softmax_state(self));
            tiles = next.get(&work_tile::tiles);
            if (tiles == 0) break;
            softmax_state following(self);
            const bool skipping = base::skip_last_keys(self, next, k, tiles);
            query = q.wait();
            auto key = k.wait_converged();
            base::begin_scores(self, at.s, query.uniform_stage().group[self.index()], key->tile);
            auto value = begin_values(self, at, v);
            base::arrive_for_next(self);
            base::skip_last_values_if(v, skipping);
            q_scale = q_scale_of(self, query);
            const float scale = q_scale * get(self, key->descale, 0);
            following.v_scale = v_scale_of(self, key);
            read_v_scale(args, current, softmax);
            wait_mma<1>(self, at.s);
            key.release();
            end_values(self, at, value);
            exp_and_sum_first(self, args, at.s, following, next, scale, tiles - 1);
            convert(self, at.p, at.s);
            write(self, current, args, shared, at, softmax);
            at.o.clear(self);
            softmax = following;
            current = std::move(next);
        }
        auto value = begin_values(self, at, v);
        read_v_scale(args, current, softmax);
        end_values(self, at, value);
        write(self, current, args, shared, at, softmax);
        wait_stores_read(self);
    }

  private:
    // The scores of a key tile together with P V of the tile before, which the softmax of the scores overlaps.
    template <class QTile, class Query, class Keys, class Values, class Held, class Masked>
    IMBREX_KERNEL static void step(warpgroup& self, const arguments& args, shared_memory& shared, register_tiles& at,
                                   QTile& q_tile, Query& query, float q_scale, Keys& k, Values& v,
                                   softmax_state& softmax, const Held& current, int tile, Masked masked) {
        auto key = k.wait_converged();
        base::begin_scores(self, at.s, q_tile, key->tile);
        auto value = begin_values(self, at, v);
        base::arrive_for_next(self);
        const float scale = q_scale * get(self, key->descale, 0);
        const float v_scale = v_scale_of(self, key);
        const auto sign = softmax.check_row_max_sign(self);
        wait_mma<1>(self, at.s);
        key.release();
        if constexpr (Kernel::q_stages == 1) query.release_if(tile == 0);
        if constexpr (masked) {
            // P V ends first: with it in flight there are too few registers for the mask.
            end_values(self, at, value);
            modify_and_mask_if_partial(self, current, args, at.s, scale, tile);
        }
        row_factors factors;
        fill(self, factors, 1.0f);
        const auto note = [&](const auto& reported) { factors = reported; };
        exp_and_sum(self, at, softmax, score_scale(args, scale), sign, note, value, masked);
        convert(self, at.p, at.s);
        if constexpr (scales_by_block) {
            // The output is in units of the last tile's scale of V.
            const float units = softmax.v_scale * hw::reciprocal(v_scale);
            map(self, factors, [=](float x) { return x * units; });
            softmax.v_scale = v_scale;
        }
        at.o.rescale(self, factors);
        if constexpr (Kernel::promotes_in_shared) {
            // After P V of tile + 1. The last promotion leaves P V of as many key tiles as lie between two.
            constexpr int interval = Kernel::promotion_interval;
            if (tile % interval == interval - 1) {
                const bool first = tile + interval > first_step_of(current);
                at.o.promote(self, shared.sums[self.index()], softmax, first);
            }
        }
    }

    // The key tile of the first step of a work tile.
    template <class Held>
    IMBREX_KERNEL static int first_step_of(const Held& current) {
        return current.get(&work_tile::tiles) - 2;
    }

    // The very first scores: there is no P V before them. Returns their scale.
    template <class Query, class Keys>
    IMBREX_KERNEL static float compute_first_scores(warpgroup& self, register_tiles& at, const Query& query,
                                                    float q_scale, Keys& k, softmax_state& softmax) {
        auto key = k.wait_converged();
        base::begin_scores(self, at.s, query.uniform_stage().group[self.index()], key->tile);
        base::arrive_for_next(self);
        const float scale = q_scale * get(self, key->descale, 0);
        softmax.v_scale = v_scale_of(self, key);
        wait_mma(self, at.s);
        return scale;
    }
    template <class Values>
    IMBREX_KERNEL static auto begin_values(warpgroup& self, register_tiles& at, Values& v) {
        auto value = v.wait_converged();
        at.o.begin(self, at.p, *value);
        return value;
    }
    // Part number `Part` of P V; the last one releases V.
    template <int Part, class Value>
    IMBREX_KERNEL static void advance_values(warpgroup& self, register_tiles& at, Value& value) {
        at.o.template advance<Part>(self, at.p, *value);
        if constexpr (Part + 1 == output_sum::parts) value.release();
    }
    template <class Value>
    IMBREX_KERNEL static void end_values(warpgroup& self, register_tiles& at, Value& value) {
        [&]<int... Parts>(std::integer_sequence<int, Parts...>) {
            (advance_values<Parts>(self, at, value), ...);
        }
        (std::make_integer_sequence<int, output_sum::parts>{});
    }

    // The scale of Q. Without blocks of rows that of K includes it.
    template <class Query>
    IMBREX_KERNEL static float q_scale_of(const warpgroup& self, const Query& query) {
        if constexpr (scales_by_block) return get(self, query->descale, self.index());
        return 1.0f;
    }
    // The scale of V. If it may change from tile to tile, the output is divided by it: it is not below 2^-60. Otherwise
    // it is read when the output is complete, and takes no register before.
    template <class Key>
    IMBREX_KERNEL static float v_scale_of(const warpgroup& self, const Key& key) {
        if constexpr (scales_by_block) return hw::max(get(self, key->descale, 1), 0x1p-60f);
        return 1.0f;
    }
    template <class Held>
    IMBREX_KERNEL static void read_v_scale(const arguments& args, const Held& current, softmax_state& softmax) {
        if constexpr (!scales_by_block) {
            const attention_extents sequence = current.get(&work_tile::sequence);
            softmax.v_scale = descale_of_row<typename Kernel::scaling>(args.v_descale, 0, sequence.batch,
                                                                       sequence.head / args.q_heads_per_kv_head, 0);
        }
    }
    template <class Held>
    IMBREX_KERNEL static void write(warpgroup& self, const Held& current, const arguments& args, shared_memory& shared,
                                    register_tiles& at, softmax_state& softmax) {
        if constexpr (Kernel::promotes_in_shared) {
            if (first_step_of(current) >= Kernel::promotion_interval - 1) {
                at.o.finish(self, shared.sums[self.index()], softmax);
            }
        }
        if constexpr (sizeof(typename base::out_element) == 1) {
            const attention_extents sequence = current.get(&work_tile::sequence);
            const float scale =
                descale_of_row<typename Kernel::scaling>(args.out_descale, 0, sequence.batch, sequence.head, 0);
            softmax.v_scale *= hw::reciprocal(hw::max(scale, 0x1p-60f));
        }
        base::write(self, current, args, shared, at.o.out, softmax, staged_late{});
    }
    IMBREX_KERNEL static fp8_score_scale score_scale(const arguments& args, float scale) {
        return fp8_score_scale(scale_log2_after(args.score, scale).value);
    }

    // Scores become probabilities, while P V of the tile before ends unless it has `ended`. `rescale` receives the
    // factors of the output's rows.
    template <class Sign, class Rescale, class Value, class Ended>
    IMBREX_KERNEL static void exp_and_sum(warpgroup& self, register_tiles& at, softmax_state& softmax,
                                          const fp8_score_scale& scale, [[maybe_unused]] const Sign& sign,
                                          const Rescale& rescale, Value& value, [[maybe_unused]] Ended ended) {
        if constexpr (tuning::row_by_row && !Ended::value) {
            constexpr int points = 4 / output_sum::parts;
            const auto meanwhile = [&](auto point) {
                if constexpr (point % points == 0) advance_values<point / points>(self, at, value);
            };
            softmax.exp_and_sum_row_by_row(self, at.s, scale, sign, meanwhile, rescale);
        } else {
            if constexpr (tuning::integer_row_max && !Ended::value) {
                softmax.template exp_and_sum<tuning::wait_point>(self, at.s, scale, sign, rescale);
            } else {
                softmax.template exp_and_sum<tuning::wait_point>(self, at.s, scale, rescale);
            }
            if constexpr (!Ended::value) end_values(self, at, value);
        }
    }
    // The first tile of a work tile: there is no output to rescale.
    template <class Held>
    IMBREX_KERNEL static void exp_and_sum_first(warpgroup& self, const arguments& args, scores& s,
                                                softmax_state& softmax, const Held& held, float scale, int tile) {
        modify_and_mask(self, held, args, s, scale, tile);
        softmax.template exp_and_sum<tuning::wait_point>(self, s, score_scale(args, scale), no_output_yet);
    }

    template <class Held>
    IMBREX_KERNEL static void modify_and_mask(warpgroup& self, const Held& held, const arguments& args, scores& s,
                                              float scale, int tile) {
        const work_tile now = held.get();
        const int first_query = now.queries.first + self.index() * warpgroup_rows;
        const int first_key = (now.first_tile + tile) * block_n;
        apply_score_mod_and_mask(self, s, now, first_query, first_key, args.mask, args.score, scale);
    }
    template <class Held>
    IMBREX_KERNEL static void modify_and_mask_if_partial(warpgroup& self, const Held& held, const arguments& args,
                                                         scores& s, float scale, int tile) {
        if (tuning::modify_all_tiles || tuning::separate_masked_loop || !held.get(&work_tile::unmasked).has(tile))
            modify_and_mask(self, held, args, s, scale, tile);
    }
};

}  // namespace imbrex
