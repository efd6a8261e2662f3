// Attention of tokens to a cache of keys and values in pages, by rows and in float arithmetic, where there are no matrix instructions or
// where floats are to be multiplied as floats: prompts of any length and single tokens, in one launch.
//
//     using attend = simt_paged_attention<float, causal_mask>;
//     attention_problem<float> p{.q = batch_sequence_head(q, 1, tokens, heads, depth),
//                                .k = batch_head_sequence(k_pages, pages, kv_heads, page_size, depth),
//                                .v = batch_head_sequence(v_pages, pages, kv_heads, page_size, depth),
//                                .out = batch_sequence_head(out, 1, tokens, heads, depth),
//                                .seqused_k = lengths,
//                                .varlen = {sequences, starts},
//                                .paged_kv = {.block_table = table, .max_blocks_per_seq = width}};
//     attend::launch(world::host, p);
//
// The problem is stated as paged_decode's (kernels/paged_decode.hpp), with as many tokens of a sequence as there are, and with
// depths of any multiple of 8 up to 256. Queries and results are float, bf16 or fp16; the cache is of their type, or of bf16 or
// fp16 under queries of float. Scores, weights and sums are floats. Results are normalised; their logarithms are left where
// lse2 says, if it does. Nothing is allocated, there is no workspace, and results have the same bits every time. What is
// refused is refused before anything is launched.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/fast_divmod.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/heuristics.hpp>
#include <imbrex/kernels/simt_paged_attention/kernel.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace imbrex {

// Columns of values that kernels are made for; others are taken by the next larger one.
using all_simt_head_dims = decode_head_dims<32, 64, 128, 256>;

inline namespace IMBREX_WORLDS {

template <class In, class Mask = causal_mask, class Score = score_mod::identity, class HeadDims = all_simt_head_dims,
          class Cache = In>
class simt_paged_attention {
    static_assert(std::is_same_v<In, float> || std::is_same_v<In, bf16> || std::is_same_v<In, fp16>,
                  "imbrex: queries are float, bf16 or fp16");
    static_assert(std::is_same_v<Cache, In> ||
                      (std::is_same_v<In, float> && (std::is_same_v<Cache, bf16> || std::is_same_v<Cache, fp16>)),
                  "imbrex: a cache has the type of the queries, or it is bf16 or fp16 under queries of float");

  public:
    using problem = attention_problem<In, attention_output_mode::normalised, Cache>;
    template <int HeadDim>
    using kernel = simt_paged_attention_kernel<In, HeadDim, Mask, Score, Cache>;

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, kv_layout::paged, 8);
        const bool can = HeadDims::visit(p.head_dim_v(), [&]<int HeadDim>() {
            if (!p.empty()) launch_kernel<HeadDim>(where, p, mask, score, stream);
        });
        require(can, "v.extents[3]: ", p.head_dim_v(), "; this attention has kernels of ", HeadDims::text());
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
    // Where units take differently long, blocks that are done early take more of them.
    static constexpr int blocks_per_sm = 16;

    template <int HeadDim>
    static void launch_kernel(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        const std::int64_t rows = static_cast<std::int64_t>(p.seqlen_q()) * (p.heads() / p.kv_heads());
        const auto arguments = arguments_of<HeadDim>(p, mask, score);
        const std::int64_t work_items = arguments.schedule.total(p.seqlen_q(), p.varlen.given());
        require(std::max(rows, work_items) <= 2147483647, "q.extents[1], q.extents[2]: ", p.heads(), ", ", p.seqlen_q(),
                "; at most 2147483647 rows and units of ", kernel<HeadDim>::rows, " of them are allowed");
        const int most = imbrex::num_sms(where) * blocks_per_sm;
        imbrex::launch<kernel<HeadDim>>(where, {std::min(arguments.work_items, most)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
