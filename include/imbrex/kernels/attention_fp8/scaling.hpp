// Scales of 8-bit Q, K and V (descale factors: value = scale * element) and their granularity, a policy:
//
//     fp8_scaling::per_tensor           one scale for the tensor
//     fp8_scaling::per_head             one for each batch entry and head
//     fp8_scaling::per_block<64, 128>   one for each 64 rows of Q and each 128 keys, counted from a sequence's first
//
// Another policy is a functor with the same members. Scales are positive, and read by the kernel: they are in the
// memory of its world. In a varlen batch the batch index is that of the sequence.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/ops/memory/read_element.hpp>

#include <concepts>
#include <cstdint>

namespace imbrex {

// Scales [batch, head, block], blocks contiguous. Null: all are 1. A stride of 0 repeats; `heads_per_scale`
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

}  // namespace fp8_scaling

// The scale of the block that a row belongs to.
template <class Scaling>
IMBREX_KERNEL float descale_of_row(const descale_view& scales, int block_rows, int batch, int head, int row) {
    if (scales.pointer == nullptr) return 1.0f;
    return Scaling{}(scales, batch, head, block_rows == 0 ? 0 : row / block_rows);
}

}  // namespace imbrex
