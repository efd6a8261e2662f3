// The arguments of the binding paged_append.
#pragma once

#include "paged_kv.hpp"

#include <imbrex/kernels/rope/style.hpp>

#include <string>

namespace imbrex::bindings {

struct paged_append_call {
    tensor k, v;              // new: [batch, token, kv_head, head_dim], or [token, kv_head, head_dim] of a varlen batch
    tensor k_cache, v_cache;  // [page, row in page, kv_head, head_dim]
    tensor k_scales = {}, v_scales = {};
    tensor block_table = {};
    tensor seqused_k = {};  // new tokens included
    tensor cu_seqlens_q = {};
    tensor q = {}, q_out = {};  // queries to rotate
    tensor inv_freq = {};       // int64, fixed point (rope/frequencies.hpp): one per pair of columns
    rope_style style = rope_style::half_split;
    float attention_factor = 1;
};

// The template arguments of a variant: bf16, e4m3.
inline std::string paged_append_variant(const paged_append_call& in) {
    return str_cat("paged_append, ", type_of(in.k.type), ", ", type_of(in.k_cache.type));
}

}  // namespace imbrex::bindings
