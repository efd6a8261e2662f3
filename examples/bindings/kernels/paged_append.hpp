// paged_append behind a plain function (../variant.hpp).
#pragma once

#include "../calls/paged_append.hpp"
#include "../rope.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/paged_append.hpp>

#include <cstdint>

namespace imbrex::bindings {

inline namespace IMBREX_WORLDS {

template <class In, class Cache>
struct paged_append {
    using call = paged_append_call;

    static void run(const execution& on, const call& c) {
        paged_append_problem<In, Cache> p{.k = attention_view_of<const In>(c.k, "k"),
                                          .v = attention_view_of<const In>(c.v, "v"),
                                          .k_cache = attention_view_of<Cache>(c.k_cache, "k_cache"),
                                          .v_cache = attention_view_of<Cache>(c.v_cache, "v_cache")};
        if (c.cu_seqlens_q.given()) {
            p.varlen.count = static_cast<int>(c.cu_seqlens_q.count()) - 1;
            p.varlen.cu_seqlens_q = elements_of<const int>(c.cu_seqlens_q, "cu_seqlens_q");
        }
        const std::int64_t pages = p.k_cache.extents[0], kv_heads = p.k_cache.extents[1];
        p.paged_kv = block_table_of(c.block_table, p.sequences());
        p.seqused_k = elements_of<const int>(c.seqused_k, "seqused_k", p.sequences());
        p.k_scales = kv_scales_of(c.k_scales, "k_scales", pages, kv_heads);
        p.v_scales = kv_scales_of(c.v_scales, "v_scales", pages, kv_heads);
        p.rope = rope_of(c.inv_freq, c.style, c.attention_factor);
        if (c.q.given()) {
            p.q = attention_view_of<const In>(c.q, "q");
            p.q_out = attention_view_of<In>(c.q_out, "q_out");
        }
        launch_or_check<imbrex::paged_append<In, Cache>>(on, p);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
