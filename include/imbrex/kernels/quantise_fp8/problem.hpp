// quantise_fp8_problem: the arguments of a call of quantise_fp8, and their checks. Arguments that do not fit together
// throw imbrex::error with a message that names the argument, its value and what is allowed.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/attention/problem.hpp>
#include <imbrex/kernels/attention/views.hpp>
#include <imbrex/kernels/attention_fp8/problem.hpp>
#include <imbrex/kernels/attention_fp8/scaling.hpp>
#include <imbrex/kernels/quantise_fp8/rotation.hpp>
#include <imbrex/kernels/rope/embedding.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// Where scales are written: [batch, head, block], blocks contiguous, as attention_fp8 reads them (descale_view). A
// stride of 0 means that all batch entries, or all heads, share a scale. `heads_per_scale` consecutive heads share one.
struct fp8_scales {
    float* pointer = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t head_stride = 0;
    int block_rows = 0;  // rows of a sequence that share a scale, a multiple of 64; 0: all
    int heads_per_scale = 1;

    IMBREX_FN descale_view view() const { return {pointer, batch_stride, head_stride, heads_per_scale}; }
    IMBREX_FN float* at(int batch, int head, int block) const {
        return pointer + batch * batch_stride + head / heads_per_scale * head_stride + block;
    }
};

// For attention_fp8 with fp8_scaling::per_tensor, per_head and per_block. Arrays are contiguous.
inline fp8_scales fp8_scale_per_tensor(float* pointer) {
    return {pointer};
}
inline fp8_scales fp8_scales_per_head(float* pointer, int heads, int heads_per_scale = 1) {
    return {pointer, heads / heads_per_scale, 1, 0, heads_per_scale};
}
// `blocks` of each head: at least the rows of the longest sequence / block_rows, rounded up.
inline fp8_scales fp8_scales_per_block(float* pointer, int heads, int blocks, int block_rows) {
    return {pointer, std::int64_t{heads} * blocks, blocks, block_rows};
}

template <class In>
struct quantise_fp8_problem {
    static_assert(std::is_same_v<In, bf16> || std::is_same_v<In, fp16>, "imbrex: quantise_fp8 takes bf16 or fp16");

    attention_view<const In> x;  // [batch, head, row, head_dim]; varlen: batch is 1
    attention_view<e4m3> out;
    fp8_scales scales = {};
    bool scales_given = false;        // the kernel reads the scales (null: 1) instead of computing them
    const int* seqused = nullptr;     // the number of rows of each batch entry, or null
    int sequences = 0;                // varlen
    const int* cu_seqlens = nullptr;  // varlen: sequences + 1 numbers
    rope_embedding rope = {};
    const int* positions = nullptr;                   // [batch, row], for RoPE; null: rows of a sequence are numbered
    int first_position = 0;                           // of the first row of each sequence, if positions is null
    std::optional<std::uint64_t> hadamard_seed = {};  // rotates head_dim: the same for Q and K
    void* workspace = nullptr;  // quantise_fp8::workspace_bytes bytes, zero before the first launch

    bool varlen() const { return sequences != 0 || cu_seqlens != nullptr; }
    int batches() const { return varlen() ? sequences : static_cast<int>(x.extents[0]); }
    int heads() const { return static_cast<int>(x.extents[1]); }
    int head_dim() const { return x.columns(); }
    bool empty() const { return batches() == 0 || heads() == 0 || x.extents[0] * x.extents[2] == 0; }
    // With half_split, pairs are at the same place in both halves.
    head_halves halves() const {
        const bool split = rope.given() && rope.style == rope_style::half_split;
        return {head_dim() / 2, (split ? rope.rotary_dim : head_dim()) / 2};
    }
};

namespace detail {

inline bool is_power_of_two(int number) {
    return number > 0 && (number & (number - 1)) == 0;
}

template <class In>
void require_fp8_rope(const quantise_fp8_problem<In>& p) {
    const rope_embedding& rope = p.rope;
    require(rope.rotary_dim >= 0 && rope.rotary_dim % 2 == 0 && rope.rotary_dim <= p.head_dim(),
            "rope.rotary_dim: ", rope.rotary_dim, "; must be even and at most head_dim, ", p.head_dim());
    require(!rope.given() || rope.inv_freq != nullptr, "rope.inv_freq: null; ", rope.rotary_dim / 2,
            " numbers are needed");
    const bool powers = is_power_of_two(rope.rotary_dim) && is_power_of_two(p.head_dim()) && rope.rotary_dim >= 16;
    require(!rope.given() || rope.style == rope_style::interleaved || rope.rotary_dim == p.head_dim() || powers,
            "rope.rotary_dim: ", rope.rotary_dim, "; with half_split it must equal head_dim, ", p.head_dim(),
            ", or both must be powers of two from 16; otherwise call apply_rope before");
    require(p.positions == nullptr || p.first_position == 0, "first_position: ", p.first_position,
            "; positions are given, it must be 0");
    require(p.first_position + p.x.extents[2] - 1 <= 2147483647, "first_position: ", p.first_position, "; with ",
            p.x.extents[2], " rows the last position is beyond 2147483647");
}

template <class In>
void require_fp8_scales(const quantise_fp8_problem<In>& p) {
    const fp8_scales& scales = p.scales;
    require_descale(scales.view(), "scales", "x", p.heads());
    require(scales.block_rows >= 0 && scales.block_rows % 64 == 0, "scales.block_rows: ", scales.block_rows,
            "; must be 0 or a multiple of 64");
    require(scales.block_rows == 0 || p.batches() <= 1 || scales.batch_stride > 0,
            "scales.batch_stride: ", scales.batch_stride, "; with scales per block it must not be 0");
    require(p.empty() || p.scales_given || scales.pointer != nullptr, "scales.pointer: null; scales are written");
}

}  // namespace detail

template <class In>
void require_quantise_fp8(world where, const quantise_fp8_problem<In>& p) {
    using namespace detail;
    require_view(p.x, "x");
    require_view(p.out, "out");
    require_head_dim(p.x.extents[3], "x");
    const char* const names[] = {"batch entries", "heads", "rows", "columns"};
    for (int i = 0; i < 4; ++i) require_same(p.out.extents[i], "out", i, p.x.extents[i], "x", names[i]);
    require(p.sequences >= 0, "sequences: ", p.sequences, "; the number of sequences must not be negative");
    require(!p.varlen() || p.x.extents[0] == 1, "x.extents[0]: ", p.x.extents[0], "; must be 1 for varlen");
    require(!p.varlen() || p.seqused == nullptr, "seqused: ", p.seqused, "; must be null for varlen");
    require_fp8_rope(p);
    require_fp8_scales(p);
    if (p.empty()) return;
    require_apart(p.out);
    require(!p.varlen() || p.cu_seqlens != nullptr, "cu_seqlens: null; ", p.sequences + 1, " numbers are needed");
    require(tma_can_copy(p.x) && tma_can_copy(p.out), "x, out: all pointers and strides must be multiples of 16 bytes");
    const std::int64_t rows = p.x.extents[2];
    require(p.batches() * (rows / 64 + 1) * p.heads() <= 2147483647, "x.extents: ", p.batches(), " sequences with ",
            p.heads(), " heads of ", rows, " rows; too many for one launch");
    if (where == world::device) return;
    if (p.varlen()) require_cu_seqlens(p.cu_seqlens, "cu_seqlens", p.sequences, rows);
    for (int i = 0; p.seqused != nullptr && i < p.batches(); ++i) {
        require(p.seqused[i] >= 0 && p.seqused[i] <= rows, "seqused[", i, "]: ", p.seqused[i], "; the tensor has ",
                rows, " rows");
    }
}

}  // namespace imbrex
