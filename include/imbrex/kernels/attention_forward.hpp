// FlashAttention forward in one call: O = softmax(mask(score_mod(scale * Q K^T))) V, plus the base-2 LSE (log-sum-exp)
// of each row.
//
//     using attention = attention_forward<bf16, attention_options{.head_dims = {128}}, causal_mask>;
//     attention_problem<bf16> p{.q = batch_sequence_head(q, batches, seqlen_q, heads, head_dim),
//                               .k = batch_sequence_head(k, batches, seqlen_k, kv_heads, head_dim),
//                               .v = batch_sequence_head(v, batches, seqlen_k, kv_heads, head_dim),
//                               .out = batch_sequence_head(out, batches, seqlen_q, heads, head_dim)};
//     attention::launch(world::device, p, {}, {}, stream);
//
// Supported: MHA, GQA and MQA (heads is a multiple of kv_heads; consecutive query heads share a KV head); head_dim 16
// to 256, and different ones for QK and V; varlen batches (cu_seqlens); paged KV (kv_layout::paged with a block table),
// of the type of Q or, with a template argument Cache, of e4m3 or int8 with scales (kv_cache_scales.hpp); attention
// sinks; softcap, ALiBi, additive bias or any other score_mod; any mask; final, LSE-merged and split-KV partial outputs
// (attention_output_mode, attention/output.hpp); lazy rescaling of the accumulator (attention_rescaling::lazy, a few
// percent faster for slightly larger rounding errors).
//
// launch() picks the Hopper kernel (warp specialization, TMA, WGMMA; attention/hopper.hpp) or the Ampere-class kernel
// (cp.async, mma.sync; attention/ampere.hpp) from the device, the head dims and the strides (attention/heuristics.hpp).
// It allocates nothing and never synchronises, so it can be captured in a CUDA graph. Invalid arguments throw
// imbrex::error before launch.
//
// A row that sees no key gets O = 0 and LSE = -infinity. NaN and infinity in keys hidden from a query do not affect it,
// nor does anything behind the end of a sequence in K and V. Values inside a sequence are multiplied by a probability
// of zero where a mask hides them, so they must be finite.
#pragma once

#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/ampere.hpp>
#include <imbrex/kernels/attention/cache_scaling.hpp>
#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/heuristics.hpp>
#include <imbrex/kernels/attention/hopper.hpp>
#include <imbrex/kernels/attention/hopper_8bit_cache.hpp>
#include <imbrex/kernels/attention/l2_swizzle.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/options.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, attention_options Options = attention_options{}, class Mask = full_mask,
          class Score = score_mod::identity, class Cache = In>
class attention_forward {
    static_assert(detail::check_attention_extensions<Mask, Score>());
    static_assert(std::is_same_v<Cache, In> || (upconverts_to<Cache, In> && Options.kv == kv_layout::paged),
                  "imbrex: the KV cache of attention_forward has the type of Q, or is e4m3 or int8 and paged "
                  "(kv_layout::paged)");

  public:
    using problem = attention_problem<In, Options.output, Cache>;

    static attention_kernel_kind choice(world where, const problem& p) {
        require_attention(where, p, Options.kv);
        attention_kernel_kind chosen{};
        for_head_dims(
            p, [&]<attention_head_dims HeadDims>() { chosen = choose_attention_kernel(dispatch<HeadDims>(where, p)); });
        return chosen;
    }

    // Runs the launch in the checked host world under many schedules, after a comparison of the mask's claims with its
    // `keep`. Returns the first hazard, or none.
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const Mask& mask = {},
                                       const Score& score = {}) {
        require_attention(world::host_checked, p, Options.kv);
        if (auto found = check_mask(p, mask, Options.kv, "attention_forward")) return found;
        return host::check_launches([&] { launch(world::host_checked, p, mask, score); }, options);
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, Options.kv);
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            if (p.empty()) return;
            if (choose_attention_kernel(dispatch<HeadDims>(where, p)) == attention_kernel_kind::hopper) {
                launch_hopper<HeadDims>(where, p, mask, score, stream);
            } else if constexpr (Options.targets == kernel_targets::all) {
                launch_ampere<HeadDims>(where, p, mask, score, stream);
            } else {
                require(false, "q, k, v, out, world: ", name_of(where),
                        "; kernel_targets::hopper needs sm_90a, keys, and strides that are multiples of 16 bytes");
            }
        });
    }

  private:
    static constexpr bool normalised = Options.output == attention_output_mode::normalised;
    static constexpr bool paged = Options.kv == kv_layout::paged;
    using lengths = std::conditional_t<paged, paged_seqlens, attention_seqlens>;
    static constexpr bool upconverts = !std::is_same_v<Cache, In>;
    static constexpr attention_register_demand demand = attention_register_demand_of<Mask, Score, Options.output>();
    // The polynomial of a softcap is for one scale of Q K^T.
    static constexpr attention_rescaling rescaling =
        upconverts && score_has_polynomial<Score>() ? attention_rescaling::exact : Options.rescaling;

  public:  // the code that nvcc generates for a launch names it
    template <attention_head_dims HeadDims>
    struct kernels {
        using hopper = attention_hopper<In, HeadDims.qk, HeadDims.v, Mask, Score,
                                        attention_shape_for(HeadDims, demand, rescaling), Options.output, lengths>;
    };
    template <attention_head_dims HeadDims>
    requires upconverts struct kernels<HeadDims> {
        using hopper =
            attention_hopper_8bit_cache<In, Cache, HeadDims.qk, HeadDims.v, Mask, Score,
                                        attention_8bit_cache_shape_for(HeadDims, demand, rescaling), Options.output>;
    };

  private:
    template <attention_head_dims HeadDims>
    using hopper = typename kernels<HeadDims>::hopper;
    template <attention_head_dims HeadDims>
    using ampere =
        attention_ampere<In, HeadDims.qk, HeadDims.v, Mask, Score,
                         attention_ampere_shape_for(HeadDims.qk, HeadDims.v, score_is_identity<Score>(), upconverts),
                         Options.output, lengths, Cache>;

    template <class Call>
    static void for_head_dims(const problem& p, const Call& call) {
        const int index = Options.head_dims.index_for({p.head_dim_qk(), p.head_dim_v()});
        require(index < Options.head_dims.count(), "q.extents[3], v.extents[3]: ", p.head_dim_qk(), ", ",
                p.head_dim_v(), "; the compiled head dims are ", Options.head_dims.text());
        visit_head_dims<Options.head_dims>(index, call);
    }

    template <attention_head_dims HeadDims>
    static attention_dispatch dispatch(world where, const problem& p) {
        const bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out);
        const bool no_page = paged && p.k.extents[0] == 0;
        return {can_run<hopper<HeadDims>>(where), can_copy, no_page ? 0 : p.seqlen_k(Options.kv)};
    }

    // Arguments common to both kernels. `num_sms` is the number of SMs that a static schedule distributes tiles over; 1
    // if the grid has one block per tile.
    template <class Kernel>
    static typename Kernel::arguments arguments_of(const problem& p, const Mask& mask, const Score& score,
                                                   int num_sms) {
        typename Kernel::arguments made{};
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.scale_log2 = scale_log2_after(score, made.scale);
        made.q_heads_per_kv_head = p.heads() / p.kv_heads();
        made.sinks = p.sinks;
        made.outputs.lse2 = p.lse2;
        made.outputs.row_max = p.row_max;
        made.outputs.row_sum = p.row_sum;
        if constexpr (!normalised) made.outputs.o_accum = p.out;
        made.lengths = attention_lengths_of<lengths>(p);
        if constexpr (upconverts) {
            made.k_scales = p.k_scales;
            made.v_scales = p.v_scales;
        }
        const double kv_bytes = static_cast<double>(sizeof(Cache)) * p.batches() * p.kv_heads() *
                                p.seqlen_k(Options.kv) * (p.head_dim_qk() + p.head_dim_v());
        made.scheduler = attention_scheduler_of<Kernel>(p, p.seqlen_k(Options.kv), kv_bytes, mask, num_sms);
        return made;
    }

    template <attention_head_dims HeadDims>
    static void launch_hopper(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = hopper<HeadDims>;
        const int num_sms = imbrex::num_sms(where);
        auto arguments = arguments_of<kernel>(p, mask, score, num_sms);
        arguments.q = make_tma_tensor<typename kernel::q_tile>(for_tma(p.q));
        using k_tile = typename decltype(arguments.k)::tile_type;
        using v_tile = typename decltype(arguments.v)::tile_type;
        const int rows_per_copy = paged ? std::gcd(p.k.rows(), k_tile::rows) : k_tile::rows;
        arguments.k = make_tma_tensor<k_tile>(for_tma(p.k), tma_use::load, rows_per_copy);
        arguments.v = make_tma_tensor<v_tile>(for_tma(p.v), tma_use::load, rows_per_copy);
        if constexpr (normalised) {
            arguments.out_view = p.out;
            arguments.out = make_tma_tensor<typename kernel::out_tile>(for_tma(p.out), tma_use::store);
        }
        arguments.tile_counter = p.tile_counter;
        const int blocks = arguments.scheduler.total(arguments.lengths);
        imbrex::launch<kernel>(where, {std::min(blocks, num_sms)}, arguments, stream);
    }

    template <attention_head_dims HeadDims>
    static void launch_ampere(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = ampere<HeadDims>;
        require(can_run<kernel>(where), "world: ", name_of(where),
                "; the program has no attention kernel for this device, or only one that needs TMA, and a "
                "stride is not a multiple of 16 bytes");
        auto arguments = arguments_of<kernel>(p, mask, score, 1);
        arguments.q = p.q;
        arguments.k = p.k;
        arguments.v = p.v;
        if constexpr (normalised) arguments.out = p.out;
        imbrex::launch<kernel>(where, {arguments.scheduler.total(arguments.lengths)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
