// imbrex::paged_append: writes new keys and values into a paged KV cache, with RoPE.
#include "paged_kv.hpp"
#include "rope_style.hpp"

#include "../../bindings/calls/paged_append.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace imbrex_torch {

namespace {

using optional_tensor = std::optional<Tensor>;

void require_new_rows(const Tensor& k, const Tensor& v, const optional_tensor& q) {
    TORCH_CHECK_TYPE(k.scalar_type() == at::kBFloat16 || k.scalar_type() == at::kHalf || k.scalar_type() == at::kFloat,
                     "k.dtype: ", k.scalar_type(), "; must be BFloat16, Half or Float");
    require_same_device(k, {{"v", v}, {"q", q}});
    for (const auto& [name, other] : {std::pair{"v", optional_tensor(v)}, {"q", q}}) {
        if (!other) continue;
        TORCH_CHECK_TYPE(other->scalar_type() == k.scalar_type(), name, ".dtype: ", other->scalar_type(), "; must be ",
                         k.scalar_type(), ", that of k");
        TORCH_CHECK_VALUE(other->dim() == k.dim(), name, ": shape ", other->sizes(), "; ", k.dim(),
                          " dimensions are needed, as k has");
    }
}

// Returns the rotated queries, or an empty tensor.
Tensor paged_append(const Tensor& k_given, const Tensor& v_given, const Tensor& k_cache, const Tensor& v_cache,
                    const Tensor& block_table, const Tensor& seqlens, const optional_tensor& cu_seqlens_q,
                    const optional_tensor& q_given, const optional_tensor& inv_freq, const std::string& style,
                    double attention_factor, const optional_tensor& k_scales, const optional_tensor& v_scales) {
    require_new_rows(k_given, v_given, q_given);
    require_paged_kv(k_given, "k", {k_cache, v_cache, block_table, seqlens, cu_seqlens_q, k_scales, v_scales});
    require_same_device(k_given, {{"inv_freq", inv_freq}});
    TORCH_CHECK_TYPE(!inv_freq || inv_freq->scalar_type() == at::kLong, "inv_freq.dtype: ", inv_freq->scalar_type(),
                     "; must be Long: fixed-point frequencies");
    const Tensor k = with_contiguous_rows(k_given), v = with_contiguous_rows(v_given);
    const Tensor q = q_given ? with_contiguous_rows(*q_given) : Tensor();
    const Tensor q_out = at::empty(q_given ? q.sizes() : at::IntArrayRef({0}), k.options());
    imbrex::bindings::paged_append_call call;
    call.k = described(k, "k");
    call.v = described(v, "v");
    call.k_cache = described(k_cache, "k_cache");
    call.v_cache = described(v_cache, "v_cache");
    call.k_scales = described(k_scales, "k_scales");
    call.v_scales = described(v_scales, "v_scales");
    call.block_table = described(block_table, "block_table");
    call.seqused_k = described(seqlens, "seqlens");
    call.cu_seqlens_q = described(cu_seqlens_q, "cu_seqlens_q");
    call.q = described(q, "q");
    if (q_given) call.q_out = described(q_out, "q_out");
    call.inv_freq = described(inv_freq, "inv_freq");
    call.style = rope_style_of(style);
    call.attention_factor = static_cast<float>(attention_factor);
    execution_on(k).run(paged_append_variant(call), call);
    return q_out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(imbrex, m) {
    m.def(
        "paged_append(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor block_table, Tensor seqlens, "
        "Tensor? cu_seqlens_q, Tensor? q, Tensor? inv_freq, str style, float attention_factor, "
        "Tensor? k_scales, Tensor? v_scales) -> Tensor");
}
TORCH_LIBRARY_IMPL(imbrex, CPU, m) {
    m.impl("paged_append", paged_append);
}
TORCH_LIBRARY_IMPL(imbrex, CUDA, m) {
    m.impl("paged_append", paged_append);
}

}  // namespace imbrex_torch
