// Attention in one call: O = softmax(mask(score(Q K^T))) V, with the base-2 logarithm of each row's sum of exponentials.
//
//     using attention = attention_forward<bf16, causal_mask>;
//     attention_problem<bf16> p{.q = batch_sequence_head(q, batches, seqlen_q, heads, head_dim),
//                               .k = batch_sequence_head(k, batches, seqlen_k, kv_heads, head_dim),
//                               .v = batch_sequence_head(v, batches, seqlen_k, kv_heads, head_dim),
//                               .out = batch_sequence_head(out, batches, seqlen_q, heads, head_dim)};
//     attention::launch(world::device, p, {}, {}, stream);
//
// Keys and values may also lie in pages that a table names (kv_layout::paged, see attention/problem.hpp). Who wants the last
// percents of speed for a little more rounding says so (attention_rescaling::lazy, see attention/output.hpp).
//
// A view is a pointer, extents and distances (attention/views.hpp). Heads of queries are any multiple of those of keys, which
// neighbours share. A row that sees no key gives 0, and a logarithm of -infinity. The kernel is chosen from the depths and
// distances (attention/heuristics.hpp). Nothing is allocated and nothing waited for, so that a launch can be captured in a CUDA
// graph. What is refused is refused before anything is launched.
//
// NaN and infinity in keys that a query does not see change nothing for it, nor what lies behind the end of a sequence in keys and
// values. Values inside a sequence are multiplied with a weight of zero where a mask hides them, and must be finite.
#pragma once

#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/ampere.hpp>
#include <imbrex/kernels/attention/heuristics.hpp>
#include <imbrex/kernels/attention/hopper.hpp>
#include <imbrex/kernels/attention/l2_swizzle.hpp>
#include <imbrex/kernels/attention/mask.hpp>
#include <imbrex/kernels/attention/output.hpp>
#include <imbrex/kernels/attention/paged_kv.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/score_mod.hpp>
#include <imbrex/kernels/attention/views.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

namespace imbrex {

inline namespace IMBREX_WORLDS {

template <class In, class Mask = full_mask, class Score = score_mod::identity,
          attention_output_mode Mode = attention_output_mode::normalised, class HeadDimList = all_attention_head_dims,
          kv_layout KvLayout = kv_layout::contiguous, attention_rescaling Rescaling = attention_rescaling::exact>
class attention_forward {
  public:
    using problem = attention_problem<In, Mode>;

    static attention_kernel_kind choice(world where, const problem& p) {
        require_attention(where, p, KvLayout);
        attention_kernel_kind chosen{};
        for_head_dims(
            p, [&]<attention_head_dims HeadDims>() { chosen = choose_attention_kernel(dispatch<HeadDims>(where, p)); });
        return chosen;
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, KvLayout);
        for_head_dims(p, [&]<attention_head_dims HeadDims>() {
            if (p.empty()) return;
            if (choose_attention_kernel(dispatch<HeadDims>(where, p)) == attention_kernel_kind::hopper) {
                launch_hopper<HeadDims>(where, p, mask, score, stream);
            } else {
                launch_ampere<HeadDims>(where, p, mask, score, stream);
            }
        });
    }

  private:
    static constexpr bool normalised = Mode == attention_output_mode::normalised;
    static constexpr bool paged = KvLayout == kv_layout::paged;
    using lengths = std::conditional_t<paged, paged_seqlens, attention_seqlens>;
    template <attention_head_dims HeadDims>
    using hopper =
        attention_hopper<In, HeadDims.qk, HeadDims.v, Mask, Score,
                         attention_shape_for(HeadDims, attention_register_demand_of<Mask, Score, Mode>(), Rescaling),
                         Mode, lengths>;
    template <attention_head_dims HeadDims>
    using ampere = attention_ampere<In, HeadDims.qk, HeadDims.v, Mask, Score,
                                    attention_ampere_shape_for(HeadDims.qk, HeadDims.v, score_is_identity<Score>()),
                                    Mode, lengths>;

    template <class Call>
    static void for_head_dims(const problem& p, const Call& call) {
        const int index = HeadDimList::index_for({p.head_dim_qk(), p.head_dim_v()});
        require(index < HeadDimList::count, "q.extents[3], v.extents[3]: ", p.head_dim_qk(), ", ", p.head_dim_v(),
                "; this attention has kernels of ", HeadDimList::text());
        HeadDimList::visit(index, call);
    }

    template <attention_head_dims HeadDims>
    static attention_dispatch dispatch(world where, const problem& p) {
        const bool can_copy = tma_can_copy(p.q) && tma_can_copy(p.k) && tma_can_copy(p.v) && tma_can_copy(p.out);
        const bool no_page = paged && p.k.extents[0] == 0;
        return {can_run<hopper<HeadDims>>(where), can_copy, no_page ? 0 : p.seqlen_k(KvLayout)};
    }

    // What the arguments of both kernels have. `num_sms`: among which blocks are dealt out in turn; 1 if they are not.
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
        made.lengths.seqlen_q = p.seqlen_q();
        made.lengths.seqlen_k = p.seqlen_k(KvLayout);
        made.lengths.seqused_k = p.seqused_k;
        made.lengths.cu_seqlens_q = p.varlen.cu_seqlens_q;
        made.lengths.cu_seqlens_k = p.varlen.cu_seqlens_k;
        if constexpr (paged) {
            made.lengths.block_table = p.paged_kv.block_table;
            made.lengths.max_blocks_per_seq = p.paged_kv.max_blocks_per_seq;
            made.lengths.page_size = p.k.rows();
        }
        const int blocks = p.varlen.given()
                               ? attention_tile_scheduler::varlen_blocks(p.seqlen_q(), p.varlen.count, Kernel::block_m)
                               : (p.seqlen_q() + Kernel::block_m - 1) / Kernel::block_m;
        const std::int64_t all = std::int64_t{blocks} * p.heads() * (p.varlen.given() ? 1 : p.batches());
        require(all <= 2147483647, "q: ", p.batches(), " x ", p.heads(), " x ", p.seqlen_q(), " queries make ", all,
                " blocks; there may be at most 2147483647");
        const double kv_bytes = static_cast<double>(sizeof(In)) * p.batches() * p.kv_heads() * p.seqlen_k(KvLayout) *
                                (p.head_dim_qk() + p.head_dim_v());
        made.scheduler = {p.batches(), p.heads(), blocks, 0};
        if (!p.varlen.given()) {
            const attention_block_shape one{Kernel::block_m, Kernel::block_m_step, Kernel::block_n, Kernel::can_idle};
            const auto costs = attention_block_costs(one, p.seqlen_q(), p.seqlen_k(KvLayout), mask);
            made.scheduler.l2_sections = attention_l2_sections(costs, p.batches() * p.heads(), kv_bytes, num_sms);
        }
        return made;
    }

    template <attention_head_dims HeadDims>
    static void launch_hopper(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        using kernel = hopper<HeadDims>;
        const int num_sms = imbrex::num_sms(where);
        auto arguments = arguments_of<kernel>(p, mask, score, num_sms);
        arguments.q = make_tma_tensor<typename kernel::q_tile>(for_tma(p.q));
        const int rows_per_copy = paged ? std::gcd(p.k.rows(), kernel::block_n) : kernel::block_n;
        arguments.k = make_tma_tensor<typename kernel::k_tile>(for_tma(p.k), tma_use::load, rows_per_copy);
        arguments.v = make_tma_tensor<typename kernel::v_tile>(for_tma(p.v), tma_use::load, rows_per_copy);
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
                "; the program has no attention kernel for this device, or none for tensors that TMA cannot "
                "read, the distances in which are not multiples of 16 bytes");
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
