// Attention of tokens to a cache of keys and values in pages, by rows and in float arithmetic, where there are no matrix instructions or
// where floats are to be multiplied as floats: prompts of any length and single tokens, in one launch.
//
//     using attend = paged_rows<float, causal_mask>;
//     attention_problem<float> p{.q = batch_sequence_head(q, 1, tokens, heads, depth),
//                                .k = batch_head_sequence(k_pages, pages, key_heads, page_rows, depth),
//                                .v = batch_head_sequence(v_pages, pages, key_heads, page_rows, depth),
//                                .out = batch_sequence_head(out, 1, tokens, heads, depth),
//                                .key_lengths = lengths,
//                                .packed = {sequences, starts},
//                                .pages = {.table = table, .pages_per_sequence = width}};
//     attend::launch(world::host, p);
//
// The problem is stated as paged_decode's (kernels/paged_decode.hpp), with as many tokens of a sequence as there are, and with
// depths of any multiple of 8 up to 256. Queries and results are float, bf16 or fp16; the cache is of their type, or of bf16 or
// fp16 under queries of float. Scores, weights and sums are floats. Results are normalised; their logarithms are left where
// log2_sums says, if it does. Nothing is allocated, there is no workspace, and results have the same bits every time. What is
// refused is refused before anything is launched.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/known_divisor.hpp>
#include <imbrex/core/numeric.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/paged_decode/choice.hpp>
#include <imbrex/kernels/paged_rows/kernel.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace imbrex {

// Columns of values that kernels are made for; others are taken by the next larger one.
using all_row_depths = decode_depths<32, 64, 128, 256>;

inline namespace IMBREX_WORLDS {

template <class In, class Mask = causal_mask, class Score = plain_score, class Depths = all_row_depths,
          class Cache = In>
class paged_rows {
    static_assert(std::is_same_v<In, float> || std::is_same_v<In, bf16> || std::is_same_v<In, fp16>,
                  "imbrex: queries are float, bf16 or fp16");
    static_assert(std::is_same_v<Cache, In> ||
                      (std::is_same_v<In, float> && (std::is_same_v<Cache, bf16> || std::is_same_v<Cache, fp16>)),
                  "imbrex: a cache has the type of the queries, or it is bf16 or fp16 under queries of float");

  public:
    using problem = attention_problem<In, attention_result::normalised, Cache>;
    template <int Depth>
    using kernel = paged_rows_kernel<In, Depth, Mask, Score, Cache>;

    static void launch(world where, const problem& p, const Mask& mask = {}, const Score& score = {},
                       void* stream = nullptr) {
        require_attention(where, p, attention_keys::in_pages, 8);
        const bool can = Depths::visit(p.value_depth(), [&]<int Depth>() {
            if (!p.empty()) launch_kernel<Depth>(where, p, mask, score, stream);
        });
        require(can, "v.extents[3]: ", p.value_depth(), "; this attention has kernels of ", Depths::text());
    }

    template <int Depth>
    static typename kernel<Depth>::arguments arguments_of(const problem& p, const Mask& mask, const Score& score) {
        const paged_rows_order order{p.batches(), p.key_heads(), p.heads() / p.key_heads(), kernel<Depth>::rows};
        return {.q = p.q,
                .k = p.k,
                .v = p.v,
                .out = p.out,
                .log2_sums = p.log2_sums,
                .sinks = p.sinks,
                .mask = mask,
                .score = score,
                .scale = p.scale_used(),
                .lengths = paged_lengths_of(p),
                .order = order,
                .sharing = known_divisor(order.heads),
                .units = static_cast<int>(order.total(p.queries(), p.packed.given()))};
    }

  private:
    // Where units take differently long, blocks that are done early take more of them.
    static constexpr int blocks_a_processor = 16;

    template <int Depth>
    static void launch_kernel(world where, const problem& p, const Mask& mask, const Score& score, void* stream) {
        const std::int64_t rows = static_cast<std::int64_t>(p.queries()) * (p.heads() / p.key_heads());
        const auto arguments = arguments_of<Depth>(p, mask, score);
        const std::int64_t units = arguments.order.total(p.queries(), p.packed.given());
        require(std::max(rows, units) <= 2147483647, "q.extents[1], q.extents[2]: ", p.heads(), ", ", p.queries(),
                "; at most 2147483647 rows and units of ", kernel<Depth>::rows, " of them are allowed");
        const int most = processors_of(where) * blocks_a_processor;
        imbrex::launch<kernel<Depth>>(where, {std::min(arguments.units, most)}, arguments, stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
