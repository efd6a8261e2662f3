// FlashAttention backward in one call: dQ, dK and dV of O = softmax(mask(score_mod(scale * Q K^T))) V from dO, O and the
// base-2 LSE (log-sum-exp) of the forward pass.
//
//     using backward = attention_backward<bf16, attention_options{.head_dims = {128}}, causal_mask>;
//     attention_backward_problem<bf16> p{.q = ..., .k = ..., .v = ..., .out = ..., .d_out = ..., .lse2 = ...,
//                                        .d_q = ..., .d_k = ..., .d_v = ...};
//     p.workspace_bytes = backward::workspace_bytes(p);
//     p.workspace = ...;                                                         // aligned to 128 bytes
//     backward::launch(world::device, p, {}, {}, stream);
//
// Supported: MHA, GQA and MQA; varlen batches (cu_seqlens) and padded ones (seqused_k); any mask; any score_mod, which
// provides its derivative unless it adds a term. Three kernels follow each other, overlapped by PDL: preprocess (delta =
// rowsum(dO * O)), the Hopper kernel (attention_backward/hopper.hpp), and postprocess (dQ to the type of the inputs). A
// launch allocates nothing and never synchronises, so it can be captured in a CUDA graph. dQ is summed in fp32 in an
// order that varies between runs. Invalid arguments throw imbrex::error before launch.
//
// A query that sees no key has dQ = 0, a key that no query sees has dK = dV = 0; in a padded batch this includes the
// keys behind seqused_k. What lies behind the end of a sequence, even NaN, has no effect.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/options.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention_backward/hopper.hpp>
#include <imbrex/kernels/attention_backward/preprocess.hpp>
#include <imbrex/kernels/attention_backward/problem.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, attention_options Options = attention_options{.head_dims = {64, 128}}, class Mask = full_mask,
          class Score = score_mod::identity>
class attention_backward {
    static_assert(detail::check_attention_extensions<Mask, Score>());
    static_assert(Options.kv == kv_layout::contiguous && Options.output == attention_output_mode::normalised,
                  "imbrex: the backward pass takes contiguous K and V and a normalised output");

  public:
    using problem = attention_backward_problem<In>;

    static std::size_t workspace_bytes(const problem& p) {
        std::size_t bytes = 0;
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            using workspace = typename hopper<HeadDims>::workspace;
            bytes = p.no_queries() ? 0 : workspace::bytes_of(all_blocks<workspace>(p));
        });
        return bytes;
    }

    // Runs the launch in the checked host world under many schedules, after a comparison of the mask's claims with its
    // `keep`. Returns the first hazard, or none.
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const Mask& mask = {},
                                       const Score& score = {}) {
        require_attention_backward(world::host_checked, p, workspace_bytes(p));
        if (auto found = check_mask(p.forward(), mask, kv_layout::contiguous, "attention_backward")) return found;
        return host::check_launches([&] { launch(world::host_checked, p, mask, score); }, options);
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        static_assert(largest_head_dim() <= 128, "imbrex: the backward pass takes head dims up to 128");
        require_attention_backward(where, p, workspace_bytes(p));
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            using kernel = hopper<HeadDims>;
            require(can_run<kernel>(where), "world: ", name_of(where), "; attention_backward needs sm_90a");
            const bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out) &&
                                  tma_can_copy(p.d_out) && tma_can_copy(p.d_q) && tma_can_copy(p.d_k) &&
                                  tma_can_copy(p.d_v);
            require(can_copy,
                    "q, k, v, out, d_out, d_q, d_k, d_v: all pointers and strides must be multiples of 16 bytes");
            if (!p.no_queries()) preprocess<HeadDims>(where, p, stream);
            if (!p.no_keys()) launch_kernel<HeadDims>(where, p, mask, score, stream);
            if (!p.no_queries()) postprocess<HeadDims>(where, p, stream);
        });
    }

  private:
    static constexpr int largest_head_dim() {
        int largest = 0;
        for (int i = 0; i < Options.head_dims.count(); ++i) {
            const attention_head_dims one = Options.head_dims.at(i);
            largest = one.qk > largest ? one.qk : largest;
            largest = one.v > largest ? one.v : largest;
        }
        return largest;
    }

    template <attention_head_dims HeadDims>
    using hopper = attention_backward_hopper<In, HeadDims.qk, HeadDims.v, Mask, Score>;

    template <class Call>
    static void for_head_dims(const problem& p, const Call& call) {
        const int index = Options.head_dims.index_for({p.head_dim_qk(), p.head_dim_v()});
        require(index < Options.head_dims.count(), "q.extents[3], v.extents[3]: ", p.head_dim_qk(), ", ",
                p.head_dim_v(), "; the compiled head dims are ", Options.head_dims.text());
        visit_head_dims<Options.head_dims>(index, call);
    }

    template <class Workspace>
    static int blocks_of(const problem& p) {
        return Workspace::blocks_of(p.seqlen_q(), p.varlen.count, p.varlen.given());
    }
    template <class Workspace>
    static std::int64_t all_blocks(const problem& p) {
        const std::int64_t all = std::int64_t{p.members()} * p.heads() * blocks_of<Workspace>(p);
        require(all * Workspace::block_m <= 2147483647, "q: ", p.members(), " x ", p.heads(), " x ", p.seqlen_q(),
                " queries; at most 2147483647, padded, are allowed");
        return all;
    }
    template <class Workspace>
    static Workspace workspace_of(const problem& p) {
        return Workspace::in(p.workspace, p.members(), p.heads(), blocks_of<Workspace>(p));
    }
    static attention_seqlens lengths_of(const problem& p) {
        return {p.seqlen_q(), p.seqlen_k(), p.seqused_k, p.varlen.cu_seqlens_q, p.varlen.cu_seqlens_k};
    }

    template <attention_head_dims HeadDims>
    static void preprocess(world where, const problem& p, void* stream) {
        using workspace = typename hopper<HeadDims>::workspace;
        using kernel = attention_backward_preprocess<In, HeadDims.qk, HeadDims.v, workspace::block_m>;
        const int blocks = static_cast<int>(all_blocks<workspace>(p));
        imbrex::launch<kernel>(
            where, {blocks}, {p.out, p.d_out, p.lse2, workspace_of<workspace>(p), lengths_of(p), p.batches()}, stream);
    }
    template <attention_head_dims HeadDims>
    static void postprocess(world where, const problem& p, void* stream) {
        using workspace = typename hopper<HeadDims>::workspace;
        using kernel = attention_backward_postprocess<In, HeadDims.qk, workspace::block_m>;
        const int blocks = static_cast<int>(all_blocks<workspace>(p));
        imbrex::launch<kernel>(where, {blocks},
                               {p.d_q, workspace_of<workspace>(p), lengths_of(p), p.batches(), p.scale_used()}, stream);
    }

    template <attention_head_dims HeadDims>
    static void launch_kernel(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = hopper<HeadDims>;
        using workspace = typename kernel::workspace;
        typename kernel::arguments made{};
        if (!p.no_queries()) {  // otherwise the kernel writes zeros and reads nothing
            made.q = make_tma_tensor<typename kernel::q_tile>(for_tma(p.q));
            made.k = make_tma_tensor<typename kernel::k_tile>(for_tma(p.k));
            made.v = make_tma_tensor<typename kernel::v_tile>(for_tma(p.v));
            made.d_out = make_tma_tensor<typename kernel::d_out_tile>(for_tma(p.d_out));
            made.from = workspace_of<workspace>(p);
            const std::int64_t rows = all_blocks<workspace>(p) * kernel::block_m;
            using matrix = global_view<float, dimensions<dynamic, HeadDims.qk>, dimensions<HeadDims.qk, 1>>;
            made.d_q = make_tma_tensor<typename kernel::d_q_tile>(matrix{made.from.d_q, {rows}, {}}, tma_use::store);
        }
        made.d_k = make_tma_tensor<typename kernel::d_k_tile>(for_tma(p.d_k), tma_use::store);
        made.d_v = make_tma_tensor<typename kernel::d_v_tile>(for_tma(p.d_v), tma_use::store);
        made.d_k_view = p.d_k;
        made.d_v_view = p.d_v;
        made.mask = mask;
        made.score = score;
        made.scale = p.scale_used();
        made.lengths = lengths_of(p);
        made.q_heads_per_kv_head = p.heads() / p.kv_heads();  // 0 without query heads
        const int blocks = p.varlen.given()
                               ? attention_tile_scheduler::varlen_blocks(p.seqlen_k(), p.varlen.count, kernel::block_n)
                               : ceil_div(p.seqlen_k(), kernel::block_n);
        made.scheduler = {p.batches(), p.kv_heads(), blocks, 0};
        const std::int64_t all = std::int64_t{blocks} * p.kv_heads() * p.members();
        require(all <= 2147483647, "k: ", p.members(), " x ", p.kv_heads(), " x ", p.seqlen_k(), " keys make ", all,
                " blocks; at most 2147483647 are allowed");
        imbrex::launch<kernel>(where, {static_cast<int>(all)}, made, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
