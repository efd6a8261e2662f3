// attention_fp8 behind a plain function (../variant.hpp).
#pragma once

#include "../calls/attention_fp8.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/attention_fp8.hpp>

#include <cstdint>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class Out, int HeadDim, class Mask, class Score, class Scaling, fp8_accumulation Accumulation>
struct attention_fp8 {
    using call = attention_fp8_call;
    static constexpr attention_fp8_options options{.head_dims = {attention_head_dims(HeadDim)},
                                                   .accumulation = Accumulation};
    using launcher = imbrex::attention_fp8<Out, options, Mask, Scaling, Score>;

    static void run(const execution& on, const call& c) {
        attention_fp8_problem<Out> p{.q = attention_view_of<const e4m3>(c.q, "q"),
                                     .k = attention_view_of<const e4m3>(c.k, "k"),
                                     .v = attention_view_of<const e4m3>(c.v, "v"),
                                     .out = attention_view_of<Out>(c.out, "out"),
                                     .lse2 = attention_rows_of(c.lse2, "lse2", c.q)};
        c.give_to(p);
        const std::int64_t batches = c.sequences(), heads = p.q.extents[1], kv_heads = p.k.extents[1];
        // A sequence of a varlen batch may have any part of the rows: their blocks cannot be counted here.
        const bool varlen = p.varlen.given();
        const std::int64_t seqlen_q = varlen ? 0 : p.q.extents[2], seqlen_k = varlen ? 0 : p.k.extents[2];
        const auto scale_of = [&](const tensor& t, const char* name, std::int64_t count, int block, std::int64_t rows) {
            return block == 0 ? descale_of(t, name, batches, count)
                              : descale_of_blocks(t, name, batches, count, block, rows);
        };
        p.q_descale = scale_of(c.q_scale, "q_scale", heads, Scaling::q_block, seqlen_q);
        p.k_descale = scale_of(c.k_scale, "k_scale", kv_heads, Scaling::kv_block, seqlen_k);
        p.v_descale = scale_of(c.v_scale, "v_scale", kv_heads, Scaling::kv_block, seqlen_k);
        p.out_descale = descale_of(c.out_scale, "out_scale", batches, heads);
        launch_or_check<launcher>(on, p, c.mask.make<Mask>("mask"), c.score.make<Score>("score"));
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
