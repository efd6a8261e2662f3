// Consumer warpgroup of the Hopper attention kernel: 64 query rows, WGMMA for Q K^T and P V, online softmax in between
// (hopper.hpp has the diagram). For ping-pong scheduling, a warpgroup order barrier hands the tensor cores from one
// warpgroup to the next. The kernel is limited by registers, and the speed of the main loop depends on the instruction
// order that the compiler finds; docs/lab/attention.md lists what was tried.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention/work_tile.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/memory/tma.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softcap_softmax.hpp>
#include <imbrex/ops/register/softmax.hpp>
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
    using work_tile = attention_work_tile;
    static constexpr attention_shape shape = Kernel::shape;
    static constexpr attention_output_mode output_mode = Kernel::output_mode;
    static constexpr int block_n = Kernel::block_n;
    static constexpr int consumer_warpgroups = Kernel::consumer_warpgroups;
    static constexpr int warpgroup_rows = Kernel::warpgroup_rows;
    static constexpr int head_dim_v = Kernel::head_dim_v;
    static constexpr int q_stages = Kernel::q_stages;
    static constexpr bool can_skip_last_tile = Kernel::can_skip_last_tile;
    static constexpr bool can_idle = Kernel::can_idle;
    static constexpr bool by_tma = Kernel::by_tma;
    using scores = warpgroup_tile<float, warpgroup_rows, block_n>;
    using probabilities = warpgroup_tile<element, warpgroup_rows, block_n>;
    using accumulator = warpgroup_tile<float, warpgroup_rows, head_dim_v>;

    IMBREX_KERNEL static void run(warpgroup& self, const arguments& args, shared_memory& shared) {
        // Ping-pong: warpgroup 0 goes first. One arrival is left over at the end, which is harmless.
        if (self.index() == consumer_warpgroups - 1) arrive_for_next(self);
        auto work_tiles = shared.ring.work.read(self);
        auto q = shared.ring.q.consumer(self, shared.queries);
        auto k = shared.ring.k.consumer(self, shared.keys);
        auto v = shared.ring.v.consumer(self, shared.values);

        progress at;
        const auto begin_scores = [&](auto& q_tile, auto& key) {
            wait_for_order(self);
            mma_abt_async(self, at.s, q_tile, *key, accumulation::replace);
        };
        const auto begin_values = [&] {
            auto value = v.wait_converged();
            mma_ab_async(self, at.out, at.p, *value);
            return value;
        };
        const auto nothing_before = [](const auto&) {};
        const auto end_values = [&](auto& value) {
            wait_mma(self, at.out);
            value.release();
        };
        // Skips the last key tile of a work tile if this warpgroup sees none of it: K here, V once the P V product
        // before it has been issued. Branch-free: after a branch the compiler no longer treats the warpgroup as
        // converged.
        const auto skip_keys = [&](const auto& one, int& tiles) {
            if constexpr (can_skip_last_tile) {
                const bool skipping = work_tile::skips(one.get(&work_tile::skipped), self.index());
                skip_order_if(self, skipping);
                k.skip_converged_if(skipping);
                tiles -= skipping ? 1 : 0;
                return skipping;
            } else {
                return false;
            }
        };
        const auto skip_values = [&](bool skipping) {
            if constexpr (can_skip_last_tile) v.skip_converged_if(skipping);
        };
        // The work tile stays in its pipeline stage, and fields are read from shared memory where they are needed:
        // registers limit block_n.
        auto current = next_with_keys(self, args, work_tiles);
        if (!work_tile::has_keys_in(current)) return;
        int tiles = current.get(&work_tile::tiles);
        skip_values(skip_keys(current, tiles));
        softmax_state softmax = fresh_softmax(self, args);
        auto query = q.wait();
        {
            auto key = k.wait_converged();
            begin_scores(query.uniform_stage().group[self.index()], key);
            arrive_for_next(self);
            wait_mma(self, at.s);
        }
        modify_and_mask(self, current, args, at.s, tiles - 1);
        apply_softcap(self, args, at.s);
        softmax.exp_and_sum(self, at.s, nothing_before);
        convert(self, at.p, at.s);
        fill(self, at.out, 0.0f);

        while (true) {
            auto& q_tile = query.uniform_stage().group[self.index()];
            const auto step = [&](int tile, auto masked) {
                auto key = k.wait_converged();
                begin_scores(q_tile, key);
                auto value = begin_values();
                arrive_for_next(self);
                [[maybe_unused]] const auto sign = check_row_max_sign(self, softmax);
                wait_mma<1>(self, at.s);
                key.release();
                if constexpr (q_stages == 1) query.release_if(tile == 0);
                if constexpr (masked) {
                    if (modifies_all_tiles || separate_masked_loop || !current.get(&work_tile::unmasked).has(tile))
                        modify_and_mask(self, current, args, at.s, tile);
                }
                hw::row_fragment<float, warpgroup_rows, warpgroup::warps> factors;
                fill(self, factors, 1.0f);
                const auto note = [&](const auto& reported) { factors = reported; };
                if constexpr (row_by_row) {
                    softmax.exp_and_sum_row_by_row(
                        self, at.s, sign, [&] { end_values(value); }, note);
                } else {
                    if constexpr (uses_softcap_polynomial) {
                        softmax.template exp_and_sum_softcap<wait_point>(self, at.s, args.scale_log2, softcap_of(args),
                                                                         note);
                    } else if constexpr (uses_integer_row_max) {
                        softmax.template exp_and_sum<wait_point>(self, at.s, sign, note);
                    } else {
                        softmax.template exp_and_sum<wait_point>(self, at.s, note);
                    }
                    end_values(value);
                }
                convert(self, at.p, at.s);
                rescale(self, at.out, factors);
            };
            constexpr std::true_type masked_tile;
            constexpr std::false_type unmasked_tile;
            int tile = tiles - 2;
            if constexpr (can_idle) {
                // Read from shared memory in each iteration: one more live register is too many. The wait for V comes
                // last although the order barrier does not depend on it: most other forms make the loop that follows 2
                // to 5% slower.
                for (; work_tile::is_idle(current.get(&work_tile::skipped), self.index()) && tile >= 0; --tile) {
                    k.skip_converged_if(true);
                    skip_order_if(self, true);
                    v.skip_converged_if(true);
                }
            }
            if constexpr (separate_masked_loop) {
                while (tile >= 0) {
                    int first_unmasked = 0;
                    for (; tile >= 0; --tile) {
                        const tile_range unmasked = current.get(&work_tile::unmasked);
                        first_unmasked = unmasked.first;
                        if (unmasked.has(tile)) break;
                        step(tile, masked_tile);
                    }
                    for (; tile >= first_unmasked; --tile) step(tile, unmasked_tile);
                }
            } else if constexpr (modifies_all_tiles || !without_mask) {
                for (; tile >= 0; --tile) step(tile, masked_tile);
            } else {
                for (; tile >= 0; --tile) step(tile, unmasked_tile);
            }
            if constexpr (q_stages == 1) {
                query.release();  // unless the last tile did
            } else {
                query.release_if(true);  // unconditional
            }
            auto next = next_with_keys(self, args, work_tiles);
            tiles = next.get(&work_tile::tiles);
            if (tiles == 0) break;
            softmax_state following = fresh_softmax(self, args);
            const bool skipping = skip_keys(next, tiles);
            query = q.wait();
            auto key = k.wait_converged();
            begin_scores(query.uniform_stage().group[self.index()], key);
            auto value = begin_values();
            arrive_for_next(self);
            skip_values(skipping);
            wait_mma<1>(self, at.s);
            key.release();
            modify_and_mask(self, next, args, at.s, tiles - 1);
            apply_softcap(self, args, at.s);
            following.template exp_and_sum<wait_point>(self, at.s, nothing_before);
            end_values(value);
            convert(self, at.p, at.s);
            write(self, current, args, shared, at.out, softmax);
            fill(self, at.out, 0.0f);
            softmax = following;
            current = std::move(next);
        }
        auto value = begin_values();
        end_values(value);
        write(self, current, args, shared, at.out, softmax);
        wait_stores_read(self);
    }

  private:
    struct order_barriers {
        static constexpr int count = consumer_warpgroups;
    };
    using barriers = named_barriers<order_barriers>;

    struct nothing {};
    struct progress {
        scores s;
        probabilities p;
        accumulator out;
    };
    static constexpr bool normalised = output_mode == attention_output_mode::normalised;
    static constexpr bool without_mask = std::is_same_v<mask_type, full_mask>;
    // With three warpgroups registers are scarce: lazy rescaling under a mask is possible only if little else is live.
    static constexpr bool may_rescale_lazily =
        consumer_warpgroups <= 2 || without_mask || (normalised && mask_has_ranges<mask_type>());
    static constexpr int rescale_threshold =
        may_rescale_lazily ? rescale_threshold_of<output_mode>(shape.rescaling) : 0;
    // Lazy rescaling leaves a softcap to the softmax: its tanh polynomial needs no row maximum.
    static constexpr bool uses_softcap_polynomial = score_has_polynomial<score_type>() && rescale_threshold > 0;
    static constexpr bool modifies_all_tiles = !score_is_identity<score_type>() && !uses_softcap_polynomial;
    // Partially masked tiles have a loop of their own: a branch in every tile waits for its condition. Where masks or
    // outputs take more instructions, duplicating the body makes the compiler outline it into a function.
    static constexpr bool separate_masked_loop =
        !modifies_all_tiles && !uses_softcap_polynomial && !without_mask && mask_has_ranges<mask_type>() && normalised;
    using softmax_state = std::conditional_t<uses_softcap_polynomial,
                                             online_softcap_softmax<warpgroup_rows, warpgroup, rescale_threshold>,
                                             online_softmax<warpgroup_rows, warpgroup, rescale_threshold,
                                                            (rescale_threshold > 0 && consumer_warpgroups > 2)>>;
    // Processes a thread's rows one after the other: 2% faster with two warpgroups and no mask, 2% slower with a mask.
    static constexpr bool row_by_row =
        consumer_warpgroups == 2 && without_mask && !modifies_all_tiles && !uses_softcap_polynomial && normalised;
    // Row maximum by integer comparison, in fewer instructions: 3% faster with two warpgroups and a mask, 2% with three
    // warpgroups. It is 4% slower with a score_mod on all tiles; lazy rescaling gains by it (3%) only without a mask.
    static constexpr bool uses_integer_row_max =
        normalised && !modifies_all_tiles && !uses_softcap_polynomial &&
        (rescale_threshold == 0 ? consumer_warpgroups > 2 || separate_masked_loop || row_by_row : without_mask);
    // Rescaling unconditionally is faster than a vote first where head_dim_v is small or the masked tiles have a loop
    // of their own, and 3% slower for head_dim_v 256.
    static constexpr bool rescales_always =
        rescale_threshold == 0 &&
        (consumer_warpgroups > 2 ? head_dim_v <= 64 : separate_masked_loop && head_dim_v <= 128);
    // Where in the softmax to wait for the P V product. With three warpgroups the others have more to overlap, so the
    // wait comes earlier. Where no register is left for that, the wait comes after the softmax.
    static constexpr softmax_wait_point wait_point = consumer_warpgroups <= 2 ? softmax_wait_point::in_first_row
                                                     : rescale_threshold > 0 && !without_mask
                                                         ? softmax_wait_point::none
                                                         : softmax_wait_point::after_row_max;

    IMBREX_KERNEL static constexpr named_barrier order_barrier_of(int group) {
        return barriers::template of<order_barriers>(group % consumer_warpgroups);
    }
    IMBREX_KERNEL static void wait_for_order(const warpgroup& self, source here = source::current()) {
        if constexpr (shape.pingpong) order_barrier_of(self.index()).sync(self, 8, here);
    }
    IMBREX_KERNEL static void arrive_for_next(const warpgroup& self, source here = source::current()) {
        if constexpr (shape.pingpong) order_barrier_of(self.index() + 1).arrive(self, 8, here);
    }
    IMBREX_KERNEL static void skip_order_if(const warpgroup& self, bool wanted, source here = source::current()) {
        if constexpr (shape.pingpong)
            order_barrier_of(self.index())
                .sync_and_arrive_if(self, order_barrier_of(self.index() + 1), 8, wanted, here);
    }

    IMBREX_KERNEL static auto check_row_max_sign(const warpgroup& self, const softmax_state& softmax) {
        if constexpr (uses_integer_row_max) {
            return softmax.check_row_max_sign(self);
        } else {
            return nothing{};
        }
    }

    IMBREX_KERNEL static void rescale(warpgroup& self, accumulator& out,
                                      const hw::row_fragment<float, warpgroup_rows, warpgroup::warps>& factors) {
        if constexpr (rescales_always) {
            combine_with_rows(self, out, factors, functional::multiply{});
        } else {
            rescale_rows(self, out, factors);
        }
    }

    template <class Held>
    IMBREX_KERNEL static void modify_and_mask(warpgroup& self, const Held& held, const arguments& args, scores& s,
                                              int tile) {
        const work_tile now = held.get();
        const int first_query = now.queries.first + self.index() * warpgroup_rows;
        const int first_key = (now.first_tile + tile) * block_n;
        if constexpr (uses_softcap_polynomial) {
            mask_scores(self, s, now, first_query, first_key, args.mask);
        } else {
            apply_score_mod_and_mask(self, s, now, first_query, first_key, args.mask, args.score, args.scale);
        }
    }

    // The softcap of a product, before the output scale. It does not depend on positions.
    IMBREX_KERNEL static auto softcap_of(const arguments& args) {
        return [&args](float product) { return args.score.unscaled({}, 0, 0, product, args.scale); };
    }
    IMBREX_KERNEL static void apply_softcap(warpgroup& self, const arguments& args, scores& s) {
        if constexpr (uses_softcap_polynomial) map(self, s, softcap_of(args));
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

    IMBREX_KERNEL static softmax_state fresh_softmax(const warpgroup& self, const arguments& args) {
        return {self, args.scale_log2};
    }

    // The next work tile with keys, held in its pipeline stage. Work tiles without keys get their empty output on the
    // way. After the last work tile, returns one without keys.
    template <class WorkTiles>
    IMBREX_KERNEL static auto next_with_keys(warpgroup& self, const arguments& args, WorkTiles& work_tiles) {
        while (true) {
            auto held = work_tiles.hold();
            if (work_tile::has_keys_in(held) ||
                held.get(&work_tile::queries).first >= held.get(&work_tile::sequence).seqlen_q)
                return held;
            const attention_output_coord at = output_coord_of(self, held, args);
            if (at.valid_rows <= 0) continue;
            store_empty_output<output_mode, head_dim_v>(self, args.outputs, args.out_view, at,
                                                        fresh_softmax(self, args), args.sinks);
        }
    }

    template <class Held>
    IMBREX_KERNEL static void write(warpgroup& self, const Held& held, const arguments& args, shared_memory& shared,
                                    accumulator& out, softmax_state& softmax) {
        const attention_output_coord at = output_coord_of(self, held, args);
        if (at.valid_rows <= 0) return;
        if constexpr (by_tma) {
            // A TMA store of a partial tile would overwrite the next sequence of a varlen batch.
            if (!args.lengths.varlen() || at.valid_rows >= warpgroup_rows) {
                finish_attention(self, out, softmax, args.sinks, at.head);
                store_lse2(self, args.outputs, at, softmax);
                wait_stores_read(self);
                self.sync();
                store(self, shared.out.tile[self.index()], convert_to<element>(self, out));
                fence_async(self);
                self.sync();
                store_async(self, args.out.at(at.batch, at.head, at.row, 0), shared.out.tile[self.index()]);
                commit_stores(self);
                return;
            }
        }
        store_output<output_mode, head_dim_v>(self, args.outputs, args.out_view, at, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
