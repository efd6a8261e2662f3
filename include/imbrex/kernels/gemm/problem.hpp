// The GEMM problem as the caller states it: sizes, pointers and strides.
//
//     D[m x n] = epilogue(A[m x k] B[k x n]), for each of `batches` independent products
//
// A matrix is a pointer and the stride between its rows in memory; the other dimension is contiguous. A column-major
// matrix is described by the rows of its transpose. With a GLU epilogue (SwiGLU) B has 2 n columns, gate and up side by
// side.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/shape.hpp>

#include <cstdint>

namespace imbrex {

template <class T>
struct gemm_operand {
    T* pointer = nullptr;
    std::int64_t stride = 0;        // elements between rows in memory; 0: packed
    std::int64_t batch_stride = 0;  // elements between batches; 0: every batch uses this matrix
};

template <class In, class Out>
struct gemm_problem {
    int m = 0;
    int n = 0;
    int k = 0;
    gemm_operand<const In> a;
    gemm_operand<const In> b;
    gemm_operand<Out> out;
    int batches = 1;
};

namespace detail {

// A view of the rows in memory. A matrix that all batches share has a batch extent of 1.
template <class T>
gemm_view<T> view_of(const gemm_operand<T>& operand, std::int64_t rows, std::int64_t columns, int batches) {
    const std::int64_t stride = operand.stride == 0 ? columns : operand.stride;
    const bool shared = operand.batch_stride == 0;
    return {operand.pointer,
            {shared ? 1 : batches, rows, columns},
            {shared ? rows * stride : operand.batch_stride, stride}};
}

template <class T>
void require_operand(const gemm_operand<T>& operand, const char* name, std::int64_t rows, std::int64_t columns) {
    if (rows == 0 || columns == 0) return;
    require(operand.pointer != nullptr, name, ".pointer: null; a matrix of ", rows, " x ", columns, " is needed");
    require(operand.stride == 0 || operand.stride >= columns, name, ".stride: ", operand.stride,
            "; must be 0 (packed) or at least ", columns);
    require(operand.batch_stride >= 0, name, ".batch_stride: ", operand.batch_stride, "; it must not be negative");
}

// Checks common to the kernels for a single problem with at most `most` rows.
template <class In, class Out>
void require_small_m(const gemm_problem<In, Out>& p, int most) {
    require(p.m >= 1 && p.m <= most, "m: ", p.m, "; this kernel takes 1 to ", most, " rows");
    require(p.n >= 1, "n: ", p.n, "; there must be a column");
    require(p.batches == 1, "batches: ", p.batches, "; this kernel takes one product");
    require_operand(p.a, "a", p.m, p.k);
    require_operand(p.out, "out", p.m, p.n);
}

}  // namespace detail

// The validated global views that the kernels read and write.
template <class In, class Out, matrix_layout A, matrix_layout B, bool IsGlu>
struct gemm_views {
    gemm_view<const In> a;
    gemm_view<const In> b;
    gemm_view<Out> out;

    explicit gemm_views(const gemm_problem<In, Out>& p) {
        require(p.m >= 0, "m: ", p.m, "; the number of rows must not be negative");
        require(p.n >= 0, "n: ", p.n, "; the number of columns must not be negative");
        require(p.k >= 0, "k: ", p.k, "; k must not be negative");
        require(p.batches >= 0, "batches: ", p.batches, "; the number of products must not be negative");
        const std::int64_t b_columns = std::int64_t{p.n} * (IsGlu ? 2 : 1);
        const std::int64_t a_rows = A == matrix_layout::row_major ? p.m : p.k,
                           a_columns = A == matrix_layout::row_major ? p.k : p.m;
        const std::int64_t b_rows = B == matrix_layout::row_major ? p.k : b_columns;
        const std::int64_t b_width = B == matrix_layout::row_major ? b_columns : p.k;
        detail::require_operand(p.a, "a", a_rows, a_columns);
        detail::require_operand(p.b, "b", b_rows, b_width);
        detail::require_operand(p.out, "out", p.m, p.n);
        require(p.batches <= 1 || p.out.batch_stride > 0, "out.batch_stride: 0; must be positive: ", p.batches,
                " batches cannot share one output");
        a = detail::view_of(p.a, a_rows, a_columns, p.batches);
        b = detail::view_of(p.b, b_rows, b_width, p.batches);
        out = detail::view_of(p.out, p.m, p.n, p.batches);
    }
};

}  // namespace imbrex
