// Ada-class attention forward with e4m3 Q, K and V, for every GPU from sm_89 on, with any strides and any alignment of
// the elements: the kernel of attention/ampere.hpp with 8-bit mma.sync.
//
//   P      becomes e4m3 in the order of the accumulator's registers, without exchanges between threads; V gets its keys
//          in the same order (ops/warp/accumulator_order.hpp)
//   V      row-major: ldmatrix and a byte permutation transpose it while it is loaded into registers. The columns of O are
//          permuted until the store. K-major: each warp reorders the part that it has loaded, in place
//   scales are read by every warp for itself: those of Q and K multiply the scores, that of V the output
//   O      is summed in the tensor cores, or promoted to fp32 after each key tile (output_sum.hpp), some columns of P V
//          at a time
#pragma once

#include <imbrex/core/architecture.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/kernels/attention/epilogue.hpp>
#include <imbrex/kernels/attention/fetch_rows.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/tile_scheduler.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention/work.hpp>
#include <imbrex/kernels/attention_fp8/output_sum.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>
#include <imbrex/kernels/attention_fp8/shape.hpp>
#include <imbrex/kernels/attention_fp8/softmax.hpp>
#include <imbrex/ops/grid/scheduler.hpp>
#include <imbrex/ops/memory/async_copy.hpp>
#include <imbrex/ops/register/map.hpp>
#include <imbrex/ops/warp/accumulator_order.hpp>
#include <imbrex/ops/warp/mma.hpp>
#include <imbrex/ops/warp/permuted_tile.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/register_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <type_traits>

namespace imbrex {

struct attention_fp8_ada_shape {
    int warps = 8;             // of 16 query rows each
    int block_n = 64;          // keys of a tile, a multiple of 32
    int stages = 2;            // 1 or 2, see attention/ampere.hpp
    int product_columns = 32;  // a promoted product is computed so many columns at a time
};

// Shapes that fit 99 KB of shared memory, which every such GPU has, and the registers, also on Hopper, whose mma.sync
// upconverts 8-bit operands to fp16 in registers.
constexpr attention_fp8_ada_shape attention_fp8_ada_shape_for(int head_dim) {
    return {.block_n = head_dim <= 64 ? 64 : 32};
}

template <class Out, int HeadDim, class Mask = full_mask, class Score = score_mod::identity,
          class Scaling = fp8_scaling::per_tensor, fp8_accumulation Sum = fp8_accumulation::promoted,
          fp8_v_layout VLayout = fp8_v_layout::row_major,
          attention_fp8_ada_shape Shape = attention_fp8_ada_shape_for(HeadDim)>
struct attention_fp8_ada {
    static constexpr gpu_architecture architecture = gpu_architecture::sm_89;
    static constexpr fp8_v_layout v_layout = VLayout;
    static constexpr int warps = Shape.warps;
    static constexpr int warp_rows = 16;
    static constexpr int block_m = warps * warp_rows;
    static constexpr int block_m_step = block_m;
    static constexpr bool can_idle = false;
    static constexpr int block_n = Shape.block_n;
    static constexpr int stages = Shape.stages;
    static constexpr int slice = 32;  // the K extent of one mma
    static constexpr int product_columns = Shape.product_columns;
    static constexpr bool k_major = VLayout == fp8_v_layout::k_major;
    static constexpr bool scales_by_block = Scaling::kv_block != 0;
    static_assert(HeadDim <= 128,
                  "imbrex: the registers suffice for a head_dim up to 128 of Ada-class 8-bit attention");
    static_assert(HeadDim % slice == 0 && block_n % slice == 0 && product_columns % slice == 0 &&
                      HeadDim % product_columns == 0,
                  "imbrex: head_dim, block_n and product_columns of 8-bit attention must be multiples of 32");
    static_assert(Scaling::q_block % warp_rows == 0 && Scaling::kv_block % block_n == 0,
                  "imbrex: scales of 8-bit attention are for blocks of a multiple of 16 rows of Q and a multiple of "
                  "block_n keys");
    static_assert(stages == 1 || stages == 2, "imbrex: stages must be 1 or 2");

    using q_tile = shared_tile<e4m3, block_m, HeadDim>;
    using k_tile = shared_tile<e4m3, block_n, HeadDim>;
    using v_tile = std::conditional_t<k_major, accumulator_order_shared_tile<e4m3, HeadDim, block_n>,
                                      shared_tile<e4m3, block_n, HeadDim>>;

    // The views may have fewer columns than HeadDim; missing columns are zero.
    struct arguments {
        attention_view<const e4m3> q;
        attention_view<const e4m3> k;
        attention_view<const e4m3> v;
        attention_view<Out> out;
        attention_aux_outputs outputs;
        descale_view q_descale;
        descale_view k_descale;
        descale_view v_descale;
        Mask mask;
        Score score;
        float scale;
        attention_tile_scheduler scheduler;  // of blocks of block_m queries
        attention_seqlens lengths;
        int q_heads_per_kv_head;
        const float* sinks;  // attention sinks: a logit per head, or null
    };
    struct shared_memory {
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
                fill(self, underlying_tile(out), 0.0f);
                softmax_state softmax(self);
                if (now.has_keys()) attend(self, now, args, shared, stage, softmax, out);
                write(self, now, args, out, softmax);
            }
        });
    }

  private:
    // block_m / warps: with warp_rows, which does not depend on the template's parameters, nvcc 13.0 fails internally if
    // the file has included paged_decode.hpp before.
    using softmax_state = fp8_softmax<block_m / warps, warp>;
    using scores = warp_tile<float, warp_rows, block_n>;
    using probabilities = accumulator_order_tile<e4m3, warp_rows, block_n, warp>;
    using row_factors = row_values<float, warp_rows, warp>;
    template <int Columns>
    using columns_of_out =
        std::conditional_t<k_major, warp_tile<float, warp_rows, Columns>, permuted_tile<float, warp_rows, Columns>>;
    using accumulator = columns_of_out<HeadDim>;

    struct all_warps {};
    using barriers = named_barriers<all_warps>;

    // After wait_copies: all warps are done reading the previous stage, and their copies have arrived.
    IMBREX_KERNEL static void sync(const warp& self, source here = source::current()) {
        barriers::template of<all_warps>().sync(self, warps, here);
    }

    IMBREX_KERNEL static void attend(warp& self, const attention_work& now, const arguments& args,
                                     shared_memory& shared, int& stage, softmax_state& softmax, accumulator& out) {
        const int kv_head = now.sequence.head / args.q_heads_per_kv_head;
        const auto keys = kv_rows(args.k, args.lengths, now, kv_head);
        const auto values = values_of(now, args, kv_head);
        const int last = (now.keys.end - 1) / block_n;
        const int first = now.keys.first / block_n;
        const int first_query = now.queries.first + self.index() * warp_rows;
        const float q_scale = q_scale_of(now, args, first_query);
        tile_scales scales = scales_of(now, args, kv_head, q_scale, last * block_n);
        // Safe to overwrite Q: with one stage all warps have synchronised since they read it. With two stages a warp
        // reads only its own rows of Q, so syncing its lanes suffices. Other warps may still read K of the previous
        // work.
        if constexpr (stages == 2) self.sync();
        fetch_rows<warps>(self, shared.q, queries_of(now, args));
        fetch_rows<warps>(self, shared.k[stage], keys.from(last * block_n, 0));
        if constexpr (stages == 2) fetch_values(self, shared.v[stage], values, last);
        commit_copies(self);
        for (int tile = last; tile >= first; --tile) {
            wait_copies(self);
            if constexpr (stages == 2) reorder_values(self, shared.v[stage]);
            sync(self);
            const int next = stages - 1 - stage;
            if constexpr (stages == 1) {
                fetch_values(self, shared.v[0], values, tile);
                commit_copies(self);
            } else if (tile > first) {
                fetch_rows<warps>(self, shared.k[next], keys.from((tile - 1) * block_n, 0));
                fetch_values(self, shared.v[next], values, tile - 1);
                commit_copies(self);
            }
            if constexpr (scales_by_block) scales = scales_of(now, args, kv_head, q_scale, tile * block_n);
            scores s;
            fill(self, s, 0.0f);
            multiply_keys(self, s, shared.q, shared.k[stage]);
            if constexpr (stages == 1) {
                wait_copies(self);
                reorder_values(self, shared.v[0]);
                sync(self);
                if (tile > first) {
                    fetch_rows<warps>(self, shared.k[0], keys.from((tile - 1) * block_n, 0));
                    commit_copies(self);
                }
            }
            apply_score_mod_and_mask(self, s, now, first_query, tile * block_n, args.mask, args.score, scales.score);
            const row_factors factors = exp_and_sum(self, s, softmax, args, scales);
            probabilities p;
            convert(self, p, s);
            multiply_values(self, out, factors, p, shared.v[stage]);
            stage = next;
        }
        softmax.v_scale = scales.v;
    }

    IMBREX_KERNEL static global_tile<const e4m3> queries_of(const attention_work& now, const arguments& args) {
        const int batch = now.sequence.batch;
        global_tile<const e4m3> found = args.q.at(args.lengths.member(batch), now.sequence.head,
                                                  args.lengths.first_query(batch) + now.queries.first, 0);
        found.rows = now.queries.end - now.queries.first;
        return found;
    }

    // V of one head, from the first key of the sequence on. Keys behind the last one are out of bounds.
    IMBREX_KERNEL static global_tile<const e4m3> values_of(const attention_work& now, const arguments& args,
                                                           int kv_head) {
        if constexpr (!k_major) return kv_rows(args.v, args.lengths, now, kv_head);
        const int batch = now.sequence.batch;
        global_tile<const e4m3> found =
            args.v.at(args.lengths.member(batch), kv_head, 0, args.lengths.first_key(batch));
        found.columns = now.sequence.seqlen_k;
        return found;
    }
    IMBREX_KERNEL static void fetch_values(const warp& self, v_tile& to, const global_tile<const e4m3>& values,
                                           int tile) {
        if constexpr (k_major) {
            global_tile<const e4m3> from = values.from(0, tile * block_n);
            if (from.columns > block_n) from.columns = block_n;  // whole tiles are aligned, where the keys may end
            fetch_rows<warps>(self, to.tile, from);
        } else {
            fetch_rows<warps>(self, to, values.from(tile * block_n, 0));
        }
    }
    // The rows that this warp has loaded.
    IMBREX_KERNEL static void reorder_values(const warp& self, v_tile& v) {
        if constexpr (k_major) {
            constexpr int share = HeadDim / warps;
            self.sync();  // the copies of all lanes have arrived
            reorder_rows<share>(self, v, self.index() * share, block_n);
        }
    }

    // The scale of a warp's rows of Q. Behind the last query there may be none.
    IMBREX_KERNEL static float q_scale_of(const attention_work& now, const arguments& args, int first_query) {
        if (first_query >= now.queries.end) return 1.0f;
        return descale_of_row<Scaling>(args.q_descale, Scaling::q_block, now.sequence.batch, now.sequence.head,
                                       first_query);
    }
    // The factor of the scores, and the scale of V. If that may change from tile to tile, the output is divided by it:
    // it is not below 2^-60.
    struct tile_scales {
        float score;
        float v;
    };
    IMBREX_KERNEL static tile_scales scales_of(const attention_work& now, const arguments& args, int kv_head,
                                               float q_scale, int key) {
        const int batch = now.sequence.batch;
        const float k = descale_of_row<Scaling>(args.k_descale, Scaling::kv_block, batch, kv_head, key);
        const float v = descale_of_row<Scaling>(args.v_descale, Scaling::kv_block, batch, kv_head, key);
        return {args.scale * q_scale * k, scales_by_block ? hw::max(v, 0x1p-60f) : v};
    }

    IMBREX_KERNEL static void multiply_keys(warp& self, scores& s, const q_tile& q, const k_tile& k) {
        for (int column = 0; column < HeadDim; column += slice) {
            warp_tile<e4m3, warp_rows, slice> queries;
            warp_tile<e4m3, block_n, slice> keys;
            load_operand<mma_operand::a>(self, queries,
                                         q.template subtile<warp_rows, slice>(self.index() * warp_rows, column));
            load_operand<mma_operand::b>(self, keys, k.template subtile<block_n, slice>(0, column));
            mma_abt(self, s, queries, keys);
        }
    }

    // Scores become probabilities. Returns the factors of the output's rows. With scales per block the output is in
    // units of the last tile's scale of V.
    IMBREX_KERNEL static row_factors exp_and_sum(warp& self, scores& s, softmax_state& softmax, const arguments& args,
                                                 const tile_scales& scales) {
        row_factors factors;
        fill(self, factors, 1.0f);
        const fp8_score_scale scale(scale_log2_after(args.score, scales.score).value);
        softmax.template exp_and_sum<softmax_wait_point::none>(self, s, scale,
                                                               [&](const auto& reported) { factors = reported; });
        if constexpr (scales_by_block) {
            const float units = softmax.v_scale * hw::reciprocal(scales.v);
            map(self, factors, [=](float x) { return x * units; });
            softmax.v_scale = scales.v;
        }
        return factors;
    }

    IMBREX_KERNEL static void multiply_values(warp& self, accumulator& out, const row_factors& factors,
                                              const probabilities& p, const v_tile& v) {
        if constexpr (Sum == fp8_accumulation::fast) {
            combine_with_rows(self, underlying_tile(out), factors, functional::multiply{});
            multiply_columns<0>(self, out, p, v);
        } else {
            static_for<HeadDim / product_columns>([&](auto number) {
                constexpr int first = number * product_columns;
                columns_of_out<product_columns> product;
                fill(self, underlying_tile(product), 0.0f);
                multiply_columns<first>(self, product, p, v);
                combine_columns_with_rows<first>(
                    self, underlying_tile(out), underlying_tile(product), factors,
                    [](float sum, float more, float factor) { return hw::fma(sum, factor, more); });
            });
        }
    }
    template <int First, class Product>
    IMBREX_KERNEL static void multiply_columns(warp& self, Product& product, const probabilities& p, const v_tile& v) {
        if constexpr (k_major) {
            mma_abt_columns<First>(self, product, p, v);
        } else {
            mma_ab_columns<First>(self, product, p, v);
        }
    }

    IMBREX_KERNEL static void write(warp& self, const attention_work& now, const arguments& args,
                                    const accumulator& out, softmax_state& softmax) {
        const int batch = now.sequence.batch, head = now.sequence.head;
        const int first = now.queries.first + self.index() * warp_rows;
        const attention_output_coord at{args.lengths.member(batch), head, args.lengths.first_query(batch) + first,
                                        now.queries.end - first};
        if (at.valid_rows <= 0) return;
        warp_tile<float, warp_rows, HeadDim> in_order = unpermute(self, out);
        store_output<attention_output_mode::normalised, HeadDim>(self, args.outputs, args.out, at, in_order, softmax,
                                                                 args.sinks);
    }
};

}  // namespace imbrex
