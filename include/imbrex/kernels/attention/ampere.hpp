// Ampere-class attention forward for every GPU from sm_80 on, with any strides and any alignment of the elements. No
// warp specialization: every warp has its own query rows and
//
//   loads       its share of the next K and V tiles with cp.async while the current ones are multiplied
//   multiplies  with mma.sync from shared memory; scores and probabilities never leave the registers
//   stores      its rows of O from registers
//
//     1 stage      sync   V in flight during Q K^T   sync   next K in flight during softmax and P V
//     2 stages     sync   next K and V in flight during Q K^T, softmax and P V
//
// One stage takes half the shared memory, so that two blocks fit an SM and one multiplies while the other waits. Two
// stages let the warps of a single block drift apart, so that the softmax of one overlaps the products of another.
//
// An 8-bit KV cache (Cache other than In) is copied into tiles of its own, with one stage. Each warp upconverts its share
// before the sync after which the others read it.
//
// Key tiles are visited from last to first, since a causal mask cuts the last ones. Key tiles that are hidden from all
// queries of a block are not loaded, and only partially masked tiles evaluate the mask.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/kernels/attention/cache_scaling.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/kernels/attention/fetch_rows.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/shape.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/memory/load_store.hpp>
#include <imbrex/ops/register/convert.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/register/softmax.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/upconvert.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>
#include <utility>

namespace imbrex {

// Shapes that fit 99 KB of shared memory, which every such GPU has, and the registers: a score_mod needs some of its
// own.
constexpr attention_ampere_shape attention_ampere_shape_for(int head_dim_qk, int head_dim_v,
                                                            bool scores_unchanged = false, bool upconverts = false) {
    const bool q_in_registers = head_dim_qk <= (scores_unchanged ? 128 : 96);
    if (upconverts) {
        if (head_dim_qk <= 128 && head_dim_v <= 128) return {.stages = 1, .q_in_registers = q_in_registers};
        return {.warps = 4, .block_n = 32, .stages = 1};
    }
    if (head_dim_qk <= 128 && head_dim_v <= 128) return {.q_in_registers = q_in_registers};
    if (head_dim_qk <= 192 && head_dim_v <= 128) return {.stages = 1};
    return {.block_n = 32, .stages = 1};
}

template <class In, int HeadDimQK, int HeadDimV, class Mask = full_mask, class Score = score_mod::identity,
          attention_ampere_shape Shape = attention_ampere_shape_for(HeadDimQK, HeadDimV, score_is_identity<Score>()),
          attention_output_mode Mode = attention_output_mode::normalised, class Lengths = attention_seqlens,
          class Cache = In>
struct attention_ampere {
    static_assert(sizeof(In) == 2, "imbrex: attention multiplies bf16 or fp16");
    static constexpr bool upconverts = !std::is_same_v<Cache, In>;
    static constexpr int warps = Shape.warps;
    static constexpr int warp_rows = Shape.warp_rows;
    static constexpr int block_m = warps * warp_rows;
    static constexpr int block_m_step = block_m;
    static constexpr bool can_idle = false;
    static constexpr int block_n = Shape.block_n;
    static constexpr int stages = Shape.stages;
    static constexpr int slice = 16;  // the K extent of one mma: of head_dim or of keys
    static_assert(HeadDimQK % slice == 0 && HeadDimV % slice == 0 && block_n % slice == 0,
                  "imbrex: head_dim and block_n of attention must be multiples of 16");
    static_assert(std::is_same_v<Lengths, attention_seqlens> || page_size_step % (block_n / warps) == 0,
                  "imbrex: the keys that a warp loads must lie in one page");
    static_assert(stages == 1 || (stages == 2 && !upconverts),
                  "imbrex: stages must be 1 or 2, with an 8-bit KV cache 1");

    using q_tile = shared_tile<In, block_m, HeadDimQK>;
    using k_tile = shared_tile<In, block_n, HeadDimQK>;
    using v_tile = shared_tile<attention_value<In, Cache>, block_n, HeadDimV>;

    // The views may have fewer columns than the head dims; missing columns are zero.
    struct common_arguments {
        attention_view<const In> q;
        attention_view<const Cache> k;
        attention_view<const Cache> v;
        attention_view<In> out;
        attention_aux_outputs outputs;
        Mask mask;
        Score score;
        float scale;
        scale_log2_after_score<Score> scale_log2;
        attention_tile_scheduler scheduler;  // of blocks of block_m queries
        Lengths lengths;                     // attention_seqlens, or paged_seqlens
        int q_heads_per_kv_head;
        const float* sinks;  // attention sinks: a logit per head, or null
    };
    struct scaled_arguments : common_arguments, cache_scale_arguments {};
    using arguments = std::conditional_t<upconverts, scaled_arguments, common_arguments>;
    struct nothing {};
    struct cache_rows {
        shared_tile<Cache, block_n, HeadDimQK> cache_k;
        shared_tile<Cache, block_n, HeadDimV> cache_v;
    };
    struct shared_memory : std::conditional_t<upconverts, cache_rows, nothing> {
        q_tile q;
        k_tile k[stages];
        v_tile v[stages];
    };

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        block.each_warp([&](warp& self) {
            int stage = 0;
            for (const int number : static_tile_scheduler(block, args.scheduler.total(args.lengths))) {
                const attention_work now =
                    attention_work_at(number, block_m, block_m_step, args.scheduler, args.lengths, args.mask);
                if (!now.exists()) continue;
                accumulator out;
                fill(self, out, 0.0f);
                online_softmax<warp_rows, warp> softmax(self, scale_log2_of(args, [&] { return now.sequence.head; }));
                if (now.keys.first < now.keys.end) attend(self, now, args, shared, stage, softmax, out);
                write(self, now, args, out, softmax);
            }
        });
    }

  private:
    using scores = warp_tile<float, warp_rows, block_n>;
    using probability = attention_value<In, Cache>;
    using probabilities = warp_tile<probability, warp_rows, block_n>;
    using accumulator = warp_tile<float, warp_rows, HeadDimV>;
    using query_slice = warp_tile<In, warp_rows, slice>;
    static constexpr std::make_integer_sequence<int, HeadDimQK / slice> key_slices{};
    static constexpr std::make_integer_sequence<int, block_n / slice> value_slices{};

    struct kept_queries {
        query_slice slices[HeadDimQK / slice];
    };
    struct queries_in_memory {};
    using queries = std::conditional_t<Shape.q_in_registers, kept_queries, queries_in_memory>;

    struct all_warps {};
    using barriers = named_barriers<all_warps>;

    // All warps are done reading the previous stage, and their copies have arrived (of an 8-bit cache: are upconverted).
    IMBREX_KERNEL static void wait_and_sync(const warp& self, source here = source::current()) {
        if constexpr (!upconverts) wait_copies(self, here);
        barriers::template of<all_warps>().sync(self, warps, here);
    }

    // Loads this warp's share of the rows. A share of 8-bit rows may be less than a chunk for each lane.
    template <class Tile, class Rows>
    IMBREX_KERNEL static void fetch(const warp& self, Tile& to, const Rows& from, source here = source::current()) {
        if constexpr (upconverts && sizeof(typename Tile::element) == 1) {
            constexpr int share = block_n / warps;
            const int row = self.index() * share;
            const global_tile<const Cache> mine = from.from(row, 0);
            copy_async(self, to.template subtile<share>(row), mine, here);
        } else {
            fetch_rows<warps>(self, to, from, here);
        }
    }

    // Where the rows of the cache land: in the stage, or in a tile of the type of the cache.
    IMBREX_KERNEL static auto& landing_of_keys(shared_memory& shared, int stage) {
        if constexpr (upconverts) {
            return shared.cache_k;
        } else {
            return shared.k[stage];
        }
    }
    IMBREX_KERNEL static auto& landing_of_values(shared_memory& shared, int stage) {
        if constexpr (upconverts) {
            return shared.cache_v;
        } else {
            return shared.v[stage];
        }
    }

    // This warp's share of an 8-bit tile, whose keys lie in one page.
    template <class Tile, class Landed>
    IMBREX_KERNEL static void upconvert_share(warp& self, const attention_work& now, const arguments& args, Tile& to,
                                              const Landed& from, const kv_cache_scales& scales, int first_key) {
        wait_copies(self);
        self.sync();
        constexpr int share = block_n / warps;
        const int row = self.index() * share;
        if (scales.vary_by_page()) {
            const paged_seqlens::page_location at = args.lengths.locate(now, first_key + row, share);
            const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
            const float scale = at.row < args.lengths.page_size ? scales.of_page(at.page, kv_head) : 1.0f;
            upconvert(self, to.template subtile<share>(row), from.template subtile<share>(row), share, scale);
        } else {
            upconvert(self, to.template subtile<share>(row), from.template subtile<share>(row), share);
        }
    }

    template <class Softmax>
    IMBREX_KERNEL static void attend(warp& self, const attention_work& now, const arguments& args,
                                     shared_memory& shared, int& stage, Softmax& softmax, accumulator& out) {
        const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
        const auto keys = kv_rows(args.k, args.lengths, now, kv_head);
        const auto values = kv_rows(args.v, args.lengths, now, kv_head);
        const int last = (now.keys.end - 1) / block_n;
        const int first = now.keys.first / block_n;
        const int first_query = now.queries.first + self.index() * warp_rows;
        // Safe to overwrite Q: with one stage all warps have synchronised since they read it. With two stages a warp
        // reads only its own rows of Q, so syncing its lanes suffices. Other warps may still read K of the previous
        // work.
        if constexpr (stages == 2) self.sync();
        fetch(self, shared.q, queries_of(now, args));
        fetch(self, landing_of_keys(shared, stage), keys.from(last * block_n, 0));
        if constexpr (stages == 2) fetch(self, shared.v[stage], values.from(last * block_n, 0));
        commit_copies(self);
        queries q;
        for (int tile = last; tile >= first; --tile) {
            if constexpr (upconverts)
                upconvert_share(self, now, args, shared.k[0], shared.cache_k, args.k_scales, tile * block_n);
            wait_and_sync(self);
            if constexpr (Shape.q_in_registers) {
                if (tile == last) keep(self, q, shared.q, key_slices);
            }
            const int next = stages - 1 - stage;
            if constexpr (stages == 1) {
                fetch(self, landing_of_values(shared, 0), values.from(tile * block_n, 0));
                commit_copies(self);
            } else if (tile > first) {
                fetch(self, shared.k[next], keys.from((tile - 1) * block_n, 0));
                fetch(self, shared.v[next], values.from((tile - 1) * block_n, 0));
                commit_copies(self);
            }
            scores s;
            fill(self, s, 0.0f);
            multiply_keys(self, s, q, shared.q, shared.k[stage], key_slices);
            if constexpr (stages == 1) {
                if constexpr (upconverts)
                    upconvert_share(self, now, args, shared.v[0], shared.cache_v, args.v_scales, tile * block_n);
                wait_and_sync(self);
                if (tile > first) {
                    fetch(self, landing_of_keys(shared, 0), keys.from((tile - 1) * block_n, 0));
                    commit_copies(self);
                }
            }
            apply_score_mod_and_mask(self, s, now, first_query, tile * block_n, args.mask, args.score,
                                     score_scale_of(args, now.sequence.head));
            softmax.step(self, s, out);
            multiply_values(self, out, convert_to<probability>(self, s), shared.v[stage], value_slices);
            stage = next;
        }
    }

    IMBREX_KERNEL static global_tile<const In> queries_of(const attention_work& now, const arguments& args) {
        const int batch = now.sequence.batch;
        global_tile<const In> found = args.q.at(args.lengths.member(batch), now.sequence.head,
                                                args.lengths.first_query(batch) + now.queries.first, 0);
        found.rows = now.queries.end - now.queries.first;
        return found;
    }

    template <int... Slices>
    IMBREX_KERNEL static void keep(warp& self, queries& q, const q_tile& from, std::integer_sequence<int, Slices...>) {
        (load_queries(self, q.slices[Slices], from, Slices), ...);
    }
    IMBREX_KERNEL static void load_queries(warp& self, query_slice& to, const q_tile& from, int number) {
        load_operand<mma_operand::a>(self, to,
                                     from.template subtile<warp_rows, slice>(self.index() * warp_rows, number * slice));
    }

    template <int... Slices>
    IMBREX_KERNEL static void multiply_keys(warp& self, scores& s, const queries& q, const q_tile& q_memory,
                                            const k_tile& k, std::integer_sequence<int, Slices...>) {
        (multiply_key_slice<Slices>(self, s, q, q_memory, k), ...);
    }
    template <int Slice>
    IMBREX_KERNEL static void multiply_key_slice(warp& self, scores& s, const queries& q, const q_tile& q_memory,
                                                 const k_tile& k) {
        warp_tile<In, block_n, slice> keys;
        load_operand<mma_operand::b>(self, keys, k.template subtile<block_n, slice>(0, Slice * slice));
        if constexpr (Shape.q_in_registers) {
            mma_abt(self, s, q.slices[Slice], keys);
        } else {
            query_slice from_memory;
            load_queries(self, from_memory, q_memory, Slice);
            mma_abt(self, s, from_memory, keys);
        }
    }

    template <int... Slices>
    IMBREX_KERNEL static void multiply_values(warp& self, accumulator& out, const probabilities& p, const v_tile& v,
                                              std::integer_sequence<int, Slices...>) {
        (multiply_value_slice<Slices>(self, out, p, v), ...);
    }
    template <int Slice>
    IMBREX_KERNEL static void multiply_value_slice(warp& self, accumulator& out, const probabilities& p,
                                                   const v_tile& v) {
        warp_tile<probability, slice, HeadDimV, register_layout::column_major> values;
        load_operand<mma_operand::b>(self, values, v.template subtile<slice, HeadDimV>(Slice * slice, 0));
        mma_ab(self, out, columns_of<Slice * slice, slice>(self, p), values);
    }

    template <class Softmax>
    IMBREX_KERNEL static void write(warp& self, const attention_work& now, const arguments& args, accumulator& out,
                                    Softmax& softmax) {
        const int batch = now.sequence.batch, head = now.sequence.head;
        const int first = now.queries.first + self.index() * warp_rows;
        const attention_output_coord at{args.lengths.member(batch), head, args.lengths.first_query(batch) + first,
                                        now.queries.end - first};
        if (at.valid_rows <= 0) return;
        apply_value_scale(self, args, out, head);
        store_output<Mode, HeadDimV>(self, args.outputs, args.out, at, out, softmax, args.sinks);
    }
};

}  // namespace imbrex
