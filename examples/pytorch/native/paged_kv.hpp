// The checks that paged_decode and paged_append share: of the paged KV cache.
#pragma once

#include "operator.hpp"

#include <optional>

namespace imbrex_torch {

struct paged_kv_tensors {
    Tensor k_cache, v_cache, block_table, seqlens;
    std::optional<Tensor> cu_seqlens_q, k_scales, v_scales;
};

// `rows`: the new queries or keys, called `name`: [batch, tokens, heads, head_dim], or [tokens, heads, head_dim] of a
// varlen batch.
void require_paged_kv(const Tensor& rows, const char* name, const paged_kv_tensors& all);

}  // namespace imbrex_torch
