// Scales of 8-bit Q, K and V (descale factors: value = scale * element) and their granularity, a policy:
//
//     fp8_scaling::per_tensor           one scale for the tensor
//     fp8_scaling::per_head             one for each batch entry and head
//     fp8_scaling::per_block<64, 128>   one for each 64 rows of Q and each 128 keys, counted from a sequence's first
//     fp8_scaling::per_page<128>        paged KV whose pages have a multiple of 128 rows: one for each page and KV head
//                                       (kv_cache_scales.hpp); of Q as per_head
//
// Another policy is a functor with the same members. Scales are positive, and read by the kernel: they are in the
// memory of its world. In a varlen batch the batch index is that of the sequence.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/kernels/kv_cache_scales.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <concepts>
#include <cstdint>

namespace imbrex {

// Scales [batch, head, block], blocks contiguous; per_page: [page, KV head]. Null: all are 1. A stride of 0 repeats; `heads_per_scale`
// consecutive heads share a scale, for example the query heads of a KV head.
struct descale_view {
    const float* pointer = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t head_stride = 0;
    int heads_per_scale = 1;

    IMBREX_FN float at(int batch, int head, int block) const {
        return read_element(pointer, batch * batch_stride + head / heads_per_scale * head_stride + block);
    }
};

// The scales of a KV cache.
inline descale_view descale_of_cache(const kv_cache_scales& scales) {
    return {scales.pointer, scales.page_stride, scales.head_stride};
}

// The rows of Q and the keys that share a scale (0: all of a sequence), and the scale of such a block.
template <class Scaling>
concept attention_fp8_scaling = requires(const Scaling& one, const descale_view& scales) {
    { Scaling::q_block } -> std::convertible_to<int>;
    { Scaling::kv_block } -> std::convertible_to<int>;
    { one(scales, 0, 0, 0) } -> std::convertible_to<float>;
};

namespace fp8_scaling {

struct per_tensor {
    static constexpr int q_block = 0;
    static constexpr int kv_block = 0;
    IMBREX_FN float operator()(const descale_view& scales, int, int, int) const { return scales.at(0, 0, 0); }
};

struct per_head {
    static constexpr int q_block = 0;
    static constexpr int kv_block = 0;
    IMBREX_FN float operator()(const descale_view& scales, int batch, int head, int) const {
        return scales.at(batch, head, 0);
    }
};

// Rows of Q: a multiple of 64. Keys: a multiple of 64, of 128 for head_dim up to 128.
template <int QBlock = 64, int KVBlock = 128>
struct per_block {
    static constexpr int q_block = QBlock;
    static constexpr int kv_block = KVBlock;
    IMBREX_FN float operator()(const descale_view& scales, int batch, int head, int block) const {
        return scales.at(batch, head, block);
    }
};

// The scales of K and V are those of the page in which a key lies. PageSize is a multiple of 32.
template <int PageSize = 128>
struct per_page : per_head {
    static_assert(PageSize > 0 && PageSize % 32 == 0, "imbrex: pages with scales have a multiple of 32 rows");
    static constexpr int kv_block = PageSize;
    static constexpr bool scales_by_page = true;
};

}  // namespace fp8_scaling

// Whether the batch index of the scales of K and V is the page.
template <class Scaling>
constexpr bool fp8_scales_by_page() {
    if constexpr (requires { Scaling::scales_by_page; }) {
        return Scaling::scales_by_page;
    } else {
        return false;
    }
}

// The scale of the block that a row belongs to.
template <class Scaling>
IMBREX_KERNEL float descale_of_row(const descale_view& scales, int block_rows, int batch, int head, int row) {
    if (scales.pointer == nullptr) return 1.0f;
    return Scaling{}(scales, batch, head, block_rows == 0 ? 0 : row / block_rows);
}

}  // namespace imbrex
