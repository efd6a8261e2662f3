// The arguments of the binding attention_fp8.
#pragma once

#include "attention.hpp"

#include <imbrex/kernels/attention_fp8/scaling.hpp>

#include <cstdint>
#include <string>

namespace imbrex::bindings {

// Scales are fp32: one number, [batch, heads] or [batch, heads, blocks]. The heads may be fewer: consecutive ones then
// share a scale. A dimension of 1 repeats.
struct attention_fp8_call : attention_inputs {
    tensor q_scale = {}, k_scale = {}, v_scale = {};
    tensor out_scale = {};  // of an e4m3 output
    tensor out = {};
    tensor lse2 = {};   // [batch, head, query] or [head, token]: base 2
    bool fast = false;  // fp8_accumulation::fast

    // Whether scales are those of blocks of rows: of q_block queries and kv_block keys.
    static constexpr int q_block = 64, kv_block = 128;
    bool scales_blocks() const { return q_scale.rank == 3 || k_scale.rank == 3 || v_scale.rank == 3; }
};

namespace detail {

inline bool has_scales_of_heads(const tensor& t, std::int64_t batches, std::int64_t heads) {
    return t.rank >= 2 && (t.sizes[0] == batches || t.sizes[0] == 1) && t.sizes[1] > 0 && heads % t.sizes[1] == 0;
}

}  // namespace detail

// One number, or one for each batch entry and head.
inline descale_view descale_of(const tensor& t, const char* name, std::int64_t batches, std::int64_t heads) {
    if (!t.given()) return {};
    const float* const data = detail::data_of<const float>(t, name);
    if (t.count() == 1) return {data};
    require(t.rank == 2 && detail::has_scales_of_heads(t, batches, heads), name, ": shape ", detail::shape_of(t),
            "; one number or [", batches, ", ", heads, "] is needed; the heads may be a divisor of that");
    return {data, t.sizes[0] == 1 ? 0 : t.strides[0], t.sizes[1] == 1 ? 0 : t.strides[1],
            static_cast<int>(heads / t.sizes[1])};
}

// One for each batch entry, head and block of up to `rows` rows.
inline descale_view descale_of_blocks(const tensor& t, const char* name, std::int64_t batches, std::int64_t heads,
                                      int rows_of_block, std::int64_t rows) {
    if (!t.given()) return {};
    const float* const data = detail::data_of<const float>(t, name);
    const std::int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
    require(t.rank == 3 && detail::has_scales_of_heads(t, batches, heads) && t.sizes[2] >= blocks, name, ": shape ",
            detail::shape_of(t), "; [", batches, ", ", heads, ", ", blocks, "] is needed: one for each ", rows_of_block,
            " rows, as another scale is given for each block");
    detail::require_last_stride(t, name);
    return {data, t.sizes[0] == 1 ? 0 : t.strides[0], t.sizes[1] == 1 ? 0 : t.strides[1],
            static_cast<int>(heads / t.sizes[1])};
}

// The template arguments of a variant: bf16, 128, causal_mask, score_mod::identity, fp8_scaling::per_head,
// fp8_accumulation::promoted. A number for a tensor is one per head that repeats.
inline std::string attention_fp8_variant(const attention_fp8_call& in, const std::string& mask,
                                         const std::string& score) {
    const std::int64_t qk = in.q.sizes[in.q.rank - 1], v = in.v.sizes[in.v.rank - 1], head_dim = qk > v ? qk : v;
    return str_cat("attention_fp8, ", type_of(in.out.type), ", ",
                   head_dim <= 64    ? 64
                   : head_dim <= 128 ? 128
                                     : 256,
                   ", ", mask, ", ", score, ", fp8_scaling::",
                   in.scales_blocks() ? str_cat("per_block<", in.q_block, ", ", in.kv_block, ">") : "per_head",
                   ", fp8_accumulation::", in.fast ? "fast" : "promoted");
}

}  // namespace imbrex::bindings
