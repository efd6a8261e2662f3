// The arguments of the binding paged_decode.
#pragma once

#include "attention.hpp"
#include "paged_kv.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace imbrex::bindings {

// k and v are the cache, [page, row in page, kv_head, head_dim]; seqused_k includes the new tokens.
struct paged_decode_call : attention_inputs {
    tensor block_table = {};
    tensor k_scales = {}, v_scales = {};
    std::int64_t total_seqlen_k = 0;  // approximate number of keys of all sequences; 0: unknown
    int split_size = 0;               // fixed split size; 0: dynamic splits
    tensor out = {};
    tensor lse2 = {};  // [batch, head, query] or [head, token]: base 2
    // uint8, from workspace_bytes_needed on and zero before its first launch; not given: allocated and cleared by each
    // launch.
    tensor workspace = {};
    std::size_t* workspace_bytes_needed = nullptr;  // if given, only this is computed
};

// The template arguments of a variant: bf16, e4m3, 128, causal_mask, score_mod::identity.
inline std::string paged_decode_variant(const paged_decode_call& in, const std::string& mask,
                                        const std::string& score) {
    const std::int64_t qk = in.q.sizes[in.q.rank - 1], v = in.v.sizes[in.v.rank - 1];
    return str_cat("paged_decode, ", type_of(in.q.type), ", ", type_of(in.k.type), ", ",
                   padded_head_dim(qk > v ? qk : v), ", ", mask, ", ", score);
}

}  // namespace imbrex::bindings
