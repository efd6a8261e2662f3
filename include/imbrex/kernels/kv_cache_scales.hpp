// Dequantisation scales of an 8-bit KV cache (e4m3 or int8): value = stored * scale. One scale per tensor, per KV head,
// or per page and KV head. The kernel that writes the cache (paged_append) and the kernels that read it (paged_decode)
// must be given the same scales.
//
//     kv_cache_scales{scale, 0, 0}             per tensor
//     kv_scales_per_head(scales)               [KV head]
//     kv_scales_per_page(scales, kv_heads)     [page, KV head]
//     kv_cache_scales{}                        all 1
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <cstdint>

namespace imbrex {

struct kv_cache_scales {
    const float* pointer = nullptr;  // in the memory of the kernel's world; null: every scale is 1
    std::int64_t page_stride = 0;    // in elements; 0: the same for all pages
    std::int64_t head_stride = 0;    // 0: the same for all heads

    IMBREX_FN bool given() const { return pointer != nullptr; }
    IMBREX_FN float at(int page, int head) const {
        return pointer == nullptr ? 1.0f : read_element(pointer, page * page_stride + head * head_stride);
    }

    // Factored into a part per head and a part per page.
    IMBREX_FN bool vary_by_page() const { return pointer != nullptr && page_stride != 0; }
    IMBREX_FN float of_head(int head) const { return vary_by_page() ? 1.0f : at(0, head); }
    IMBREX_FN float of_page(int page, int head) const { return vary_by_page() ? at(page, head) : 1.0f; }
};

// Stored as [KV head], contiguous.
inline kv_cache_scales kv_scales_per_head(const float* pointer) {
    return {pointer, 0, 1};
}

// Stored as [page, KV head], contiguous.
inline kv_cache_scales kv_scales_per_page(const float* pointer, std::int64_t kv_heads) {
    return {pointer, kv_heads, 1};
}

}  // namespace imbrex
