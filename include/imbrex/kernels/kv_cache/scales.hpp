// By what the numbers of a cache of 8-bit elements are multiplied: value = stored * scale. One number for the whole cache, one
// for each key head, or one for each page and key head; whoever writes the cache and whoever reads it are given the same.
//
//     kv_cache_scales{scale, 0, 0}              one for all
//     kv_scales_per_head(scales)                [key head]
//     kv_scales_per_page(scales, kv_heads)     [page, key head]
//     kv_cache_scales{}                         1
#pragma once

#include <imbrex/core/config.hpp>

#include <cstdint>

namespace imbrex {

struct kv_cache_scales {
    const float* pointer = nullptr;  // in the memory of the kernel's world; null: every scale is 1
    std::int64_t page_stride = 0;    // in numbers; 0: the same for all pages
    std::int64_t head_stride = 0;    // 0: the same for all heads

    IMBREX_FN bool given() const { return pointer != nullptr; }
    IMBREX_FN float at(int page, int head) const {
        return pointer == nullptr ? 1.0f : pointer[page * page_stride + head * head_stride];
    }

    // In two factors: what holds for all pages, and what does not.
    IMBREX_FN bool vary_by_page() const { return pointer != nullptr && page_stride != 0; }
    IMBREX_FN float of_head(int head) const { return vary_by_page() ? 1.0f : at(0, head); }
    IMBREX_FN float of_page(int page, int head) const { return vary_by_page() ? at(page, head) : 1.0f; }
};

// Stored as [key head] without gaps.
inline kv_cache_scales kv_scales_per_head(const float* pointer) {
    return {pointer, 0, 1};
}

// Stored as [page, key head] without gaps.
inline kv_cache_scales kv_scales_per_page(const float* pointer, std::int64_t kv_heads) {
    return {pointer, kv_heads, 1};
}

}  // namespace imbrex
