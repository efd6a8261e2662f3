// Views of Q, K, V and O: [batch, head, row, head_dim] with any strides, and the usual storage layouts (BSHD, BHSD,
// fused QKV).
//
//     bf16* qkv                            [batch, row, head, head_dim] with the heads of Q, of K and of V
//     const auto all = batch_sequence_head(qkv, batches, length, heads + 2 * kv_heads, head_dim);
//     const auto q = heads_of(all, 0, heads);
//     const auto k = heads_of(all, heads, kv_heads);
//     const auto v = heads_of(all, heads + kv_heads, kv_heads);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/tile/global_view.hpp>

#include <cstdint>

namespace imbrex {

// [batch, head, row, column]: any strides, columns contiguous.
template <class T>
using attention_view =
    global_view<T, dimensions<dynamic, dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, dynamic, 1>>;

// Contiguous [batch, row, head, column] (BSHD).
template <class T>
attention_view<T> batch_sequence_head(T* pointer, std::int64_t batches, std::int64_t rows, std::int64_t heads,
                                      std::int64_t head_dim) {
    return {pointer, {batches, heads, rows, head_dim}, {rows * heads * head_dim, head_dim, heads * head_dim}};
}

// Contiguous [batch, head, row, column] (BHSD).
template <class T>
attention_view<T> batch_head_sequence(T* pointer, std::int64_t batches, std::int64_t heads, std::int64_t rows,
                                      std::int64_t head_dim) {
    return {pointer, {batches, heads, rows, head_dim}, {heads * rows * head_dim, rows * head_dim, head_dim}};
}

namespace detail {

template <class T>
attention_view<T> part_of(const attention_view<T>& view, int dimension, const char* name, std::int64_t first,
                          std::int64_t count) {
    const std::int64_t there = view.extents[dimension];
    require(first >= 0 && count >= 0 && first + count <= there, "first, count: ", first, ", ", count, "; the view has ",
            there, " ", name);
    attention_view<T> part = view;
    part.extents.given[dimension] = count;
    if (count > 0) part.pointer += first * view.strides[dimension];
    return part;
}

}  // namespace detail

// A range of a view's heads, or of its rows.
template <class T>
attention_view<T> heads_of(const attention_view<T>& view, std::int64_t first, std::int64_t count) {
    return detail::part_of(view, 1, "heads", first, count);
}
template <class T>
attention_view<T> rows_of(const attention_view<T>& view, std::int64_t first, std::int64_t count) {
    return detail::part_of(view, 2, "rows", first, count);
}

// One number per query of each head (LSE, row_max, row_sum).
struct attention_row_view {
    float* pointer = nullptr;
    std::int64_t batch_stride = 0;
    std::int64_t head_stride = 0;

    IMBREX_FN float* at(int batch, int head, int query) const {
        return pointer + batch * batch_stride + head * head_stride + query;
    }
};

// Contiguous [batch, head, query].
inline attention_row_view batch_head_rows(float* pointer, std::int64_t heads, std::int64_t queries) {
    return {pointer, heads * queries, queries};
}

// Whether TMA can load or store it: the pointer and all strides are multiples of 16 bytes.
template <class T>
bool tma_can_copy(const attention_view<T>& view) {
    const auto whole_chunks = [](std::int64_t elements) {
        const std::int64_t bytes = elements * static_cast<int>(sizeof(T));
        return bytes % 16 == 0 && bytes < (std::int64_t{1} << 40);
    };
    bool can = reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0;
    for (int i = 0; i < 3; ++i) can = can && (view.extents[i] <= 1 || whole_chunks(view.strides[i]));
    return can;
}
// TMA checks the stride of a dimension of extent 1, too: replaces it by a valid one.
template <class T>
attention_view<T> for_tma(attention_view<T> view) {
    for (int i = 0; i < 3; ++i) {
        if (view.extents[i] == 1) view.strides.given[i] = (view.extents[3] + 15) / 16 * 16;
    }
    return view;
}

}  // namespace imbrex
