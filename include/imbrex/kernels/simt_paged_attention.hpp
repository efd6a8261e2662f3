// SIMT paged attention: attention over a paged KV cache in float arithmetic, without tensor cores. It is the fallback
// where there are none (the host world), and where floats must be multiplied as floats. Prefill and decode tokens run
// in one launch.
//
//     using attend = simt_paged_attention<float>;
//     attention_problem<float> p{.q = batch_sequence_head(q, 1, tokens, heads, head_dim),
//                                .k = batch_head_sequence(k_pages, pages, kv_heads, page_size, head_dim),
//                                .v = batch_head_sequence(v_pages, pages, kv_heads, page_size, head_dim),
//                                .out = batch_sequence_head(out, 1, tokens, heads, head_dim),
//                                .seqused_k = lengths,
//                                .varlen = {sequences, cu_seqlens_q},
//                                .paged_kv = {.block_table = table, .max_blocks_per_seq = width}};
//     attend::launch(world::host, p);
//
// The problem is that of paged_decode (kernels/paged_decode.hpp), with any number of tokens per sequence and head dims
// of any multiple of 8 up to 256. Q and O are float, bf16 or fp16. The KV cache has their type, or is bf16, fp16
// or e4m3 (without scales) with float queries. Scores, probabilities and accumulators are float. The output is normalised; lse2 is optional. There is
// no workspace, nothing is allocated, and results are bitwise reproducible. Invalid arguments throw imbrex::error
// before launch.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/extension_points.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/config.hpp>
#include <imbrex/kernels/simt_paged_attention/kernel.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Instantiated head_dim_v; others take the next larger one.
inline constexpr head_dim_set all_simt_head_dims{32, 64, 128, 256};

inline namespace IMBREX_WORLDS {

template <class In, head_dim_set HeadDims = all_simt_head_dims, class Mask = causal_mask,
          class Score = score_mod::identity, class Cache = In>
class simt_paged_attention {
    static_assert(detail::check_attention_extensions<Mask, Score>());

    static_assert(std::is_same_v<In, float> || std::is_same_v<In, bf16> || std::is_same_v<In, fp16>,
                  "imbrex: In must be float, bf16 or fp16");
    static_assert(std::is_same_v<Cache, In> ||
                      (std::is_same_v<In, float> &&
                       (std::is_same_v<Cache, bf16> || std::is_same_v<Cache, fp16> || std::is_same_v<Cache, e4m3>)),
                  "imbrex: Cache must be In, or bf16, fp16 or e4m3 if In is float");

  public:
    using problem = attention_problem<In, attention_output_mode::normalised, Cache>;
    template <int HeadDim>
    using kernel = simt_paged_attention_kernel<In, HeadDim, Mask, Score, Cache>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, kv_layout::paged, 8);
        const bool can = visit_head_dim<HeadDims>(p.head_dim_v(), [&]<int HeadDim>() {
            if (!p.empty()) launch_kernel<HeadDim>(where, p, mask, score, stream);
        });
        require(can, "v.extents[3]: ", p.head_dim_v(), "; instantiated head dims: ", HeadDims.text());
    }

    template <int HeadDim>
    static typename kernel<HeadDim>::arguments arguments_of(const problem& p, const Mask& mask, const Score& score) {
        const simt_paged_attention_schedule schedule{p.batches(), p.kv_heads(), p.heads() / p.kv_heads(),
                                                     kernel<HeadDim>::rows};
        return {.q = p.q,
                .k = p.k,
                .v = p.v,
                .out = p.out,
                .lse2 = p.lse2,
                .sinks = p.sinks,
                .mask = mask,
                .score = score,
                .scale = p.scale_used(),
                .lengths = paged_seqlens_of(p),
                .schedule = schedule,
                .q_heads_per_kv_head = fast_divmod(schedule.q_heads_per_kv_head),
                .work_items = static_cast<int>(schedule.total(p.seqlen_q(), p.varlen.given()))};
    }

  private:
    // More blocks than fit at once balance work items of different length.
    static constexpr int blocks_per_sm = 16;

    template <int HeadDim>
    static void launch_kernel(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        const std::int64_t rows = static_cast<std::int64_t>(p.seqlen_q()) * (p.heads() / p.kv_heads());
        const auto arguments = arguments_of<HeadDim>(p, mask, score);
        const std::int64_t work_items = arguments.schedule.total(p.seqlen_q(), p.varlen.given());
        require(std::max(rows, work_items) <= 2147483647, "q.extents[1], q.extents[2]: ", p.heads(), ", ", p.seqlen_q(),
                "; at most 2147483647 rows and work items of ", kernel<HeadDim>::rows, " rows are allowed");
        const int most = imbrex::num_sms(where) * blocks_per_sm;
        imbrex::launch<kernel<HeadDim>>(where, {std::min(arguments.work_items, most)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
