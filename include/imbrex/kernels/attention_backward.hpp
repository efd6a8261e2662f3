// FlashAttention backward in one call: dQ, dK and dV of O = softmax(mask(score_mod(scale * Q K^T))) V from dO, O and the
// base-2 LSE (log-sum-exp) of the forward pass.
//
//     using backward = attention_backward<bf16, attention_backward_options{.head_dims = {128}}, causal_mask>;
//     attention_backward_problem<bf16> p{.q = ..., .k = ..., .v = ..., .out = ..., .d_out = ..., .lse2 = ...,
//                                        .d_q = ..., .d_k = ..., .d_v = ...};
//     p.workspace_bytes = backward::workspace_bytes(p);
//     p.workspace = ...;                                                         // aligned to 128 bytes
//     backward::launch(world::device, p, {}, {}, stream);
//
// Supported: MHA, GQA and MQA; head_dim 16 to 256, and different ones for QK and V; varlen batches (cu_seqlens) and padded
// ones (seqused_k); any mask; any score_mod, which provides its derivative unless it adds a term; delta from outside and
// gradients that are added to fp32 tensors (attention_gradients::accumulated), for attention over parts of the keys;
// attention sinks and their gradient.
//
// Several kernels follow each other, overlapped by PDL: preprocess (delta = rowsum(dO * O)), the kernel of dK and dV, and
// dQ's conversion (postprocess) or a kernel of its own. launch() picks the Hopper kernel (TMA, WGMMA;
// attention_backward/hopper.hpp) or the Ampere-class kernel (cp.async, mma.sync; attention_backward/ampere.hpp) from the
// device, the head dims, the strides and the options. It allocates nothing and never synchronises, so it can be captured
// in a CUDA graph. dQ is summed in fp32 in an order that varies between runs, unless the option `deterministic` is set.
// Invalid arguments throw imbrex::error before launch.
//
// A query that sees no key has dQ = 0, a key that no query sees has dK = dV = 0; in a padded batch this includes the
// keys behind seqused_k. What lies behind the end of a sequence, even NaN, has no effect.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/check_mask.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/heuristics.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention_backward/ampere.hpp>
#include <imbrex/kernels/attention_backward/ampere_d_q.hpp>
#include <imbrex/kernels/attention_backward/hopper.hpp>
#include <imbrex/kernels/attention_backward/options.hpp>
#include <imbrex/kernels/attention_backward/postprocess.hpp>
#include <imbrex/kernels/attention_backward/preprocess.hpp>
#include <imbrex/kernels/attention_backward/problem.hpp>
#include <imbrex/kernels/attention_backward/sinks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, attention_backward_options Options = attention_backward_options{}, class Mask = full_mask,
          class Score = score_mod::identity>
class attention_backward {
    static_assert(detail::check_attention_extensions<Mask, Score>() && detail::check_score_gradients<Score>());
    static constexpr bool rounded = Options.gradients == attention_gradients::rounded;
    static constexpr bool with_ampere = Options.targets == kernel_targets::all;

  public:
    using problem = attention_backward_problem<In, Options.gradients>;

    static attention_kernel_kind choice(world where, const problem& p) {
        require_attention_backward(where, p);
        attention_kernel_kind chosen{};
        for_head_dims(p, [&]<attention_head_dims HeadDims>() { chosen = choice_of<HeadDims>(where, p); });
        return chosen;
    }

    // Enough for every kernel.
    static std::size_t workspace_bytes(const problem& p) {
        std::size_t bytes = 0;
        const auto add = [&]<class Workspace>() {
            if (!p.no_queries()) bytes = std::max(bytes, Workspace::bytes_of(all_blocks<Workspace>(p)));
        };
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            if constexpr (hopper_supports(HeadDims)) add.template operator()<typename hopper<HeadDims>::workspace>();
            if constexpr (with_ampere) add.template operator()<typename ampere<HeadDims>::workspace>();
        });
        return bytes;
    }

    // Runs the launch in the checked host world under many schedules, after a comparison of the mask's claims with its
    // `keep`. Returns the first hazard, or none.
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const Mask& mask = {},
                                       const Score& score = {}) {
        require_attention_backward(world::host_checked, p);
        if (auto found = check_mask(p.forward(), mask, kv_layout::contiguous, "attention_backward")) return found;
        return host::check_launches([&] { launch(world::host_checked, p, mask, score); }, options);
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention_backward(where, p);
        require_workspace(p, workspace_bytes(p));
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            const launcher<HeadDims> one{where, p, mask, score, stream};
            if (choice_of<HeadDims>(where, p) == attention_kernel_kind::hopper) {
                if constexpr (hopper_supports(HeadDims)) one.launch_hopper();
            } else if constexpr (with_ampere) {
                one.launch_ampere();
            } else {
                require(
                    false, "q, k, v, out, d_out, d_q, d_k, d_v, world: ", name_of(where),
                    "; kernel_targets::hopper needs sm_90a, and pointers and strides that are multiples of 16 bytes");
            }
        });
    }

  private:
    // Smaller head dims are padded with zeros.
    static constexpr int hopper_head_dim(int head_dim) {
        return head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : head_dim <= 128 ? 128 : head_dim <= 192 ? 192 : 256;
    }
    template <attention_head_dims HeadDims>
    using hopper =
        attention_backward_hopper<In, hopper_head_dim(HeadDims.qk), hopper_head_dim(HeadDims.v), Mask, Score,
                                  Options.gradients,
                                  Options.deterministic ? attention_d_q_order::ordered : attention_d_q_order::any>;
    template <attention_head_dims HeadDims>
    using ampere =
        attention_backward_ampere<In, HeadDims.qk, HeadDims.v, Mask, Score, Options.gradients,
                                  Options.deterministic ? attention_d_q_order::separate : attention_d_q_order::any>;
    template <attention_head_dims HeadDims>
    using ampere_d_q = attention_backward_ampere_d_q<In, HeadDims.qk, HeadDims.v, Mask, Score, Options.gradients>;

    static constexpr bool hopper_supports(const attention_head_dims& head_dims) {
        return attention_head_dims(Options.deterministic ? 128 : 256).fits(head_dims);
    }
    static constexpr bool hopper_supports_all() {
        for (int i = 0; i < Options.head_dims.count(); ++i) {
            if (!hopper_supports(Options.head_dims.at(i))) return false;
        }
        return true;
    }
    static_assert(
        with_ampere || hopper_supports_all(),
        "imbrex: kernel_targets::hopper: the Hopper kernel of the backward pass takes head dims up to 256, with "
        "attention_backward_options::deterministic up to 128; compile kernel_targets::all");

    template <attention_head_dims HeadDims>
    static attention_kernel_kind choice_of(world where, const problem& p) {
        if constexpr (hopper_supports(HeadDims)) {
            bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.d_out);
            can_copy = can_copy && (p.has_delta() || tma_can_copy(p.out));
            if (rounded) can_copy = can_copy && tma_can_copy(p.d_q) && tma_can_copy(p.d_k) && tma_can_copy(p.d_v);
            if (can_copy && can_run<hopper<HeadDims>>(where)) return attention_kernel_kind::hopper;
        }
        return attention_kernel_kind::ampere_class;
    }

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

    template <attention_head_dims HeadDims>
    struct launcher {
        world where;
        const problem& p;
        const Mask& mask;
        const Score& score;
        void* stream;

        void launch_hopper() const {
            using workspace = typename hopper<HeadDims>::workspace;
            preprocess<row_alignment::aligned>(workspace_of<workspace>());
            if (adds_to_keys()) launch_hopper_kernel();
            if (p.no_queries()) return;
            if constexpr (rounded) {
                using kernel = attention_backward_postprocess<In, workspace, attention_d_q_store::by_tma>;
                postprocess<kernel>({make_tma_tensor<typename kernel::d_q_tile>(for_tma(p.d_q), tma_use::store), p.d_q,
                                     workspace_of<workspace>(), lengths(), p.batches(), p.scale_used()});
            } else {
                write_d_q<workspace>();
            }
        }

        void launch_ampere() const {
            using kernel = ampere<HeadDims>;
            using workspace = typename kernel::workspace;
            require(can_run<kernel>(where), "world: ", name_of(where),
                    "; the program has no attention_backward kernel for this device, or only one that needs TMA, and a "
                    "stride is not a multiple of 16 bytes");
            workspace there = workspace_of<workspace>();
            if constexpr (Options.deterministic) there.d_q = nullptr;
            preprocess<row_alignment::unaligned>(there);
            if (adds_to_keys()) launch_ampere_kernel<kernel>(key_blocks(kernel::block_n));
            if (p.no_queries()) return;
            if constexpr (Options.deterministic) {
                launch_ampere_kernel<ampere_d_q<HeadDims>>(query_blocks(ampere_d_q<HeadDims>::block_m));
            } else {
                write_d_q<workspace>();
            }
        }

      private:
        attention_seqlens lengths() const {
            return {p.seqlen_q(), p.seqlen_k(), p.seqused_k, p.varlen.cu_seqlens_q, p.varlen.cu_seqlens_k};
        }
        // Without queries the kernel of dK and dV writes zeros.
        bool adds_to_keys() const { return !p.no_keys() && (rounded || !p.no_queries()); }
        template <class Workspace>
        Workspace workspace_of() const {
            if (p.no_queries()) return {};
            return Workspace::in(p.workspace, p.members(), p.heads(), blocks_of<Workspace>(p));
        }

        // Without queries there is no workspace, and the gradient of sinks is 0.
        template <row_alignment Known, class Workspace>
        void preprocess(const Workspace& to) const {
            using kernel = attention_backward_preprocess<In, HeadDims.v, Workspace, Known>;
            if (!p.no_queries()) {
                imbrex::launch<kernel>(where, {static_cast<int>(all_blocks<Workspace>(p))},
                                       {p.out, p.d_out, p.lse2, p.delta, to, lengths(), p.batches()}, stream);
            }
            if (p.d_sinks == nullptr || p.heads() == 0) return;
            const int queries = p.no_queries() ? 0 : to.blocks * Workspace::block_m;
            const auto rows = [&](auto* from) {
                return batch_head_rows(reinterpret_cast<float*>(from), p.heads(), queries);
            };
            imbrex::launch<attention_backward_sinks<row_alignment::aligned>>(
                where, {p.heads()}, {p.sinks, p.d_sinks, rows(to.lse2), rows(to.delta), p.members(), queries, !rounded},
                stream);
        }
        template <class Kernel>
        void postprocess(const typename Kernel::arguments& made) const {
            const int blocks = made.from.blocks * p.members() * p.heads();
            imbrex::launch<Kernel>(where, {blocks}, made, stream);
        }
        template <class Workspace>
        void write_d_q() const {
            using kernel = attention_backward_postprocess<typename problem::gradient, Workspace,
                                                          attention_d_q_store::from_registers>;
            postprocess<kernel>({{}, p.d_q, workspace_of<Workspace>(), lengths(), p.batches(), p.scale_used()});
        }

        // The blocks of a kernel, of keys or of queries.
        attention_tile_scheduler key_blocks(int block_n) const {
            return scheduler_of(p.seqlen_k(), p.kv_heads(), block_n, "k", "keys");
        }
        attention_tile_scheduler query_blocks(int block_m) const {
            return scheduler_of(p.seqlen_q(), p.heads(), block_m, "q", "queries");
        }
        attention_tile_scheduler scheduler_of(int rows, int heads, int block, const char* name,
                                              const char* what) const {
            const int blocks = p.varlen.given() ? attention_tile_scheduler::varlen_blocks(rows, p.varlen.count, block)
                                                : ceil_div(rows, block);
            const std::int64_t all = std::int64_t{blocks} * heads * p.members();
            require(all <= 1073741823, name, ": ", p.members(), " x ", heads, " x ", rows, " ", what, " make ", all,
                    " blocks; at most 1073741823 are allowed");
            return {p.batches(), heads, blocks, 0};
        }

        void launch_hopper_kernel() const {
            using kernel = hopper<HeadDims>;
            typename kernel::arguments made{};
            if (!p.no_queries()) {  // otherwise the kernel writes zeros and reads nothing
                made.q = make_tma_tensor<typename kernel::q_tile>(for_tma(p.q));
                made.k = make_tma_tensor<typename kernel::k_tile>(for_tma(p.k));
                made.v = make_tma_tensor<typename kernel::v_tile>(for_tma(p.v));
                made.d_out = make_tma_tensor<typename kernel::d_out_tile>(for_tma(p.d_out));
            }
            if constexpr (rounded) {
                made.d_k = make_tma_tensor<typename kernel::d_k_tile>(for_tma(p.d_k), tma_use::store);
                made.d_v = make_tma_tensor<typename kernel::d_v_tile>(for_tma(p.d_v), tma_use::store);
            }
            made.d_k_view = p.d_k;
            made.d_v_view = p.d_v;
            const attention_tile_scheduler keys = key_blocks(kernel::cluster_n);
            launch_kernel<kernel>(
                made, attention_key_block_scheduler{keys.batches, keys.heads, keys.blocks, section_heads<kernel>()},
                kernel::cluster);
        }
        // A power of 2, as many KV heads as have their Q, dO and dQ in L2 together. One if all key blocks cost the same; but
        // if they take turns, the fewer of one head run at a time, the less they wait.
        template <class Kernel>
        int section_heads() const {
            if (std::is_same_v<Mask, full_mask> && !Options.deterministic) return 1;
            constexpr double cache = 40e6;
            const double row =
                sizeof(In) * (Kernel::head_dim_qk + Kernel::head_dim_v) + sizeof(float) * Kernel::head_dim_qk;
            const double head = row * p.seqlen_q() * std::max(1, p.heads() / p.kv_heads());
            const int all = p.members() * p.kv_heads();
            int heads = 1;
            while (2 * heads <= all && 2 * heads * head <= cache) heads *= 2;
            return heads;
        }
        template <class Kernel>
        void launch_ampere_kernel(const attention_tile_scheduler& scheduler) const {
            typename Kernel::arguments made{};
            made.q = p.q;
            made.k = p.k;
            made.v = p.v;
            made.d_out = p.d_out;
            made.d_q = p.d_q;
            made.d_k = p.d_k;
            made.d_v = p.d_v;
            launch_kernel<Kernel>(made, scheduler);
        }
        // With the arguments that all kernels have.
        template <class Kernel, class Scheduler>
        void launch_kernel(typename Kernel::arguments& made, const Scheduler& scheduler, int cluster = 1) const {
            made.from = workspace_of<typename Kernel::workspace>();
            made.mask = mask;
            made.score = score;
            made.scale = p.scale_used();
            made.lengths = lengths();
            made.q_heads_per_kv_head = p.heads() / p.kv_heads();  // 0 without query heads
            made.scheduler = scheduler;
            imbrex::launch<Kernel>(where, {scheduler.total(made.lengths) * cluster}, made, stream);
        }
    };
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
