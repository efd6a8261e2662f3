// Row views for the memory-bound elementwise kernels (RMSNorm, LayerNorm, SwiGLU, embedding, RoPE, sampling): the rows
// of a matrix, or one row per (token, head).
//
//     row_view<const bf16> x = as_rows(pointer, tokens, columns);                      // a matrix
//     row_view<const bf16> q = as_rows_of_heads(qkv, tokens, 32, 128, 48 * 128);       // 32 of 48 heads of each token
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/global_view.hpp>

#include <cstdint>

namespace imbrex {

// [token, head, column]; a matrix has one head.
template <class T>
using row_view = global_view<T, dimensions<dynamic, dynamic, dynamic>, dimensions<dynamic, dynamic, 1>>;

// Packed if the stride is 0.
template <class T>
row_view<T> as_rows(T* pointer, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = 0) {
    return {pointer, {rows, 1, columns}, {row_stride == 0 ? columns : row_stride, columns}};
}
// The heads of a token are contiguous.
template <class T>
row_view<T> as_rows_of_heads(T* pointer, std::int64_t tokens, std::int64_t heads, std::int64_t columns,
                             std::int64_t token_stride = 0) {
    return {pointer, {tokens, heads, columns}, {token_stride == 0 ? heads * columns : token_stride, columns}};
}

// Kernel argument form: rows indexed by one number, token * heads + head.
template <class T>
struct row_accessor {
    T* pointer = nullptr;
    std::int64_t token_stride = 0, head_stride = 0;
    int heads = 1;

    IMBREX_FN bool given() const { return pointer != nullptr; }
    IMBREX_FN T* at(int row, int column) const {
        const int token = heads == 1 ? row : row / heads;
        return pointer + token * token_stride + (row - token * heads) * head_stride + column;
    }
};

// Row pointers of consecutive rows from a column on, as load_rows_from and store_rows_to take them; null past the last
// row.
template <class T>
struct row_pointers {
    const row_accessor<T>& rows;
    int first;
    int count;  // total number of rows
    int column;

    IMBREX_FN T* operator()(int row) const { return first + row < count ? rows.at(first + row, column) : nullptr; }
};

template <class T>
row_accessor<T> row_accessor_of(const row_view<T>& view) {
    // Uniformly strided heads collapse to the rows of a matrix, which saves the division by the number of heads.
    const bool even = view.extents[0] <= 1 || view.strides[0] == view.extents[1] * view.strides[1];
    if (view.extents[1] > 1 && even) return {view.pointer, view.strides[1], 0, 1};
    return {view.pointer, view.strides[0], view.strides[1], static_cast<int>(view.extents[1])};
}

namespace detail {

// Row and tile indices are int, and kernels count slightly past the last one.
inline constexpr std::int64_t max_rows = 2147483647 - 65535;

// Extents within range, and a pointer if there are elements.
template <class T>
void require_rows(const row_view<T>& view, const char* name) {
    const char* const names[] = {"tokens", "heads", "columns"};
    for (int i = 0; i < 3; ++i) {
        require(view.extents[i] >= 0 && view.extents[i] <= max_rows, name, ".extents[", i, "]: ", view.extents[i],
                "; the number of ", names[i], " is from 0 to ", max_rows);
    }
    const std::int64_t all = view.extents[0] * view.extents[1];
    require(all <= max_rows, name, ".extents[0], ", name, ".extents[1]: ", view.extents[0], ", ", view.extents[1],
            "; at most ", max_rows, " rows are allowed");
    require(view.pointer != nullptr || all * view.extents[2] == 0, name, ".pointer: null; ", view.extents[0], " x ",
            view.extents[1], " x ", view.extents[2], " elements are needed");
}

template <class T, class U>
void require_same_rows(const row_view<T>& view, const char* name, const row_view<U>& other, const char* other_name) {
    const char* const names[] = {"tokens", "heads", "columns"};
    for (int i = 0; i < 3; ++i) {
        require(view.extents[i] == other.extents[i], name, ".extents[", i, "]: ", view.extents[i], "; ", other_name,
                " has ", other.extents[i], " ", names[i], ", and it must have as many");
    }
}

// Output rows must not overlap.
template <class T>
void require_disjoint_rows(const row_view<T>& view, const char* name) {
    const char* const names[] = {"tokens", "heads"};
    for (int i = 0; i < 2; ++i) {
        require(view.extents[i] <= 1 || view.strides[i] >= view.extents[2], name, ".strides[", i,
                "]: ", view.strides[i], "; ", names[i], " of results lie at least the ", view.extents[2],
                " elements of a row apart");
    }
}

// Whether rows can be moved in 16-byte vectors.
template <class T>
bool can_vectorise(const row_view<T>& view) {
    constexpr std::int64_t chunk = 16 / static_cast<std::int64_t>(sizeof(T));
    bool all = reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0;
    for (int i = 0; i < 2; ++i) all = all && (view.extents[i] <= 1 || view.strides[i] % chunk == 0);
    return all && view.extents[2] % 8 == 0;
}

}  // namespace detail

}  // namespace imbrex
