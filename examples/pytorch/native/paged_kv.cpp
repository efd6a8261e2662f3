#include "paged_kv.hpp"

#include <imbrex/kernels/attention/paged_kv.hpp>

#include <cstdint>

namespace imbrex_torch {

namespace {

bool has_8_bits(const Tensor& t) {
    return t.scalar_type() == at::kFloat8_e4m3fn || t.scalar_type() == at::kChar;
}

void require_cache(const Tensor& cache, const char* name, const Tensor& rows, const char* rows_name) {
    TORCH_CHECK_TYPE(cache.scalar_type() == rows.scalar_type() || has_8_bits(cache), name,
                     ".dtype: ", cache.scalar_type(), "; must be ", rows.scalar_type(), ", that of ", rows_name,
                     ", Float8_e4m3fn or Char");
    TORCH_CHECK_VALUE(cache.dim() == 4, name, ": shape ", cache.sizes(),
                      "; [pages, rows in a page, kv_heads, head_dim] is needed");
    TORCH_CHECK_VALUE(cache.size(1) > 0 && cache.size(1) % imbrex::page_size_step == 0, name,
                      ".shape[1]: ", cache.size(1), "; the rows of a page are a multiple of ", imbrex::page_size_step);
}

void require_int32(const Tensor& t, const char* name) {
    TORCH_CHECK_TYPE(t.scalar_type() == at::kInt, name, ".dtype: ", t.scalar_type(), "; must be Int");
}

void require_scales(const std::optional<Tensor>& scales, const char* name, const Tensor& cache) {
    if (!scales) return;
    TORCH_CHECK_TYPE(scales->scalar_type() == at::kFloat, name, ".dtype: ", scales->scalar_type(), "; must be Float");
    TORCH_CHECK_VALUE(has_8_bits(cache), name, ": shape ", scales->sizes(),
                      "; only caches of 8 bits have scales, and this one is ", cache.scalar_type());
}

}  // namespace

void require_paged_kv(const Tensor& rows, const char* name, const paged_kv_tensors& all) {
    const bool varlen = all.cu_seqlens_q.has_value();
    TORCH_CHECK_VALUE(all.seqlens.defined(), "seqlens: None; the length of each sequence is needed");
    TORCH_CHECK_VALUE(rows.dim() == (varlen ? 3 : 4), name, ": shape ", rows.sizes(), "; ",
                      varlen ? "[tokens, heads, head_dim]" : "[batch, tokens, heads, head_dim]", " is needed");
    require_same_device(rows, {{"k_cache", all.k_cache},
                               {"v_cache", all.v_cache},
                               {"block_table", all.block_table},
                               {"seqlens", all.seqlens},
                               {"cu_seqlens_q", all.cu_seqlens_q},
                               {"k_scales", all.k_scales},
                               {"v_scales", all.v_scales}});
    require_cache(all.k_cache, "k_cache", rows, name);
    require_cache(all.v_cache, "v_cache", rows, name);
    TORCH_CHECK_TYPE(all.v_cache.scalar_type() == all.k_cache.scalar_type(),
                     "v_cache.dtype: ", all.v_cache.scalar_type(), "; must be ", all.k_cache.scalar_type(),
                     ", that of k_cache");
    require_int32(all.block_table, "block_table");
    require_int32(all.seqlens, "seqlens");
    if (varlen) require_int32(*all.cu_seqlens_q, "cu_seqlens_q");
    TORCH_CHECK_VALUE(!varlen || (all.cu_seqlens_q->dim() == 1 && all.cu_seqlens_q->size(0) >= 1),
                      "cu_seqlens_q: shape ", varlen ? all.cu_seqlens_q->sizes() : at::IntArrayRef(),
                      "; one number more than sequences is needed");
    const std::int64_t sequences = varlen ? all.cu_seqlens_q->size(0) - 1 : rows.size(0);
    TORCH_CHECK_VALUE(all.block_table.dim() == 2 && all.block_table.size(0) == sequences, "block_table: shape ",
                      all.block_table.sizes(), "; [", sequences, ", blocks] is needed");
    TORCH_CHECK_VALUE(all.seqlens.dim() == 1 && all.seqlens.size(0) == sequences, "seqlens: shape ",
                      all.seqlens.sizes(), "; [", sequences, "] is needed");
    require_scales(all.k_scales, "k_scales", all.k_cache);
    require_scales(all.v_scales, "v_scales", all.v_cache);
}

}  // namespace imbrex_torch
