// The paged KV cache as callers pass it, for the bindings paged_decode and paged_append: a block table, and the scales of
// an 8-bit cache.
#pragma once

#include "../tensor.hpp"

#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>

#include <cstdint>

namespace imbrex::bindings {

// int32 [sequence, max_blocks_per_seq]; rows may be strided.
inline paged_kv block_table_of(const tensor& t, std::int64_t sequences) {
    int* const data = detail::data_of<int>(t, "block_table");
    require(t.rank == 2 && t.sizes[0] == sequences, "block_table: shape ", detail::shape_of(t), "; [", sequences,
            ", blocks] is needed");
    detail::require_last_stride(t, "block_table");
    require(sequences <= 1 || t.strides[0] >= t.sizes[1], "block_table.strides[0]: ", t.strides[0],
            "; must be at least ", t.sizes[1]);
    const std::int64_t width = sequences <= 1 ? t.sizes[1] : t.strides[0];
    return {data, static_cast<int>(width)};
}

// fp32: one number, [kv_heads], or [pages, kv_heads] with any strides.
inline kv_cache_scales kv_scales_of(const tensor& t, const char* name, std::int64_t pages, std::int64_t kv_heads) {
    if (!t.given()) return {};
    const float* const data = detail::data_of<const float>(t, name);
    const bool per_tensor = t.count() == 1;
    const bool per_head = t.rank == 1 && t.sizes[0] == kv_heads;
    const bool per_page = t.rank == 2 && t.sizes[0] == pages && t.sizes[1] == kv_heads;
    require(per_tensor || per_head || per_page, name, ": shape ", detail::shape_of(t), "; one number, [", kv_heads,
            "] or [", pages, ", ", kv_heads, "] is needed");
    if (per_tensor) return {data, 0, 0};
    return per_head ? kv_cache_scales{data, 0, t.strides[0]} : kv_cache_scales{data, t.strides[0], t.strides[1]};
}

}  // namespace imbrex::bindings
