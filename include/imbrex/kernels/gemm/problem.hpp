// A product as its user states it: sizes, and where the matrices lie.
//
//     D[m x n] = epilogue(A[m x k] B[k x n]), for each of `batches` independent products
//
// Each matrix is a pointer and the distance of its rows as they are stored: of A stored transposed these are the rows of its
// transpose. The other dimension is contiguous. With a gated epilogue B has 2 n columns.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/shape.hpp>

#include <cstdint>

namespace imbrex {

template <class T>
struct gemm_operand {
    T* pointer = nullptr;
    std::int64_t stride = 0;        // elements from one stored row to the next; 0: packed
    std::int64_t batch_stride = 0;  // from one product's matrix to the next's; 0: all share this one
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

// The matrix as a view of rows as stored. One that all products share has one batch.
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
    require(operand.stride == 0 || operand.stride >= columns, name, ".stride: ", operand.stride, "; rows of ", columns,
            " elements lie at least that far apart (0: exactly)");
    require(operand.batch_stride >= 0, name, ".batch_stride: ", operand.batch_stride, "; it must not be negative");
}

// What a kernel for one product of at most so many rows asks for, whatever its weights are.
template <class In, class Out>
void require_small_m(const gemm_problem<In, Out>& p, int most) {
    require(p.m >= 1 && p.m <= most, "m: ", p.m, "; this kernel takes 1 to ", most, " rows");
    require(p.n >= 1, "n: ", p.n, "; there must be a column");
    require(p.batches == 1, "batches: ", p.batches, "; this kernel takes one product");
    require_operand(p.a, "a", p.m, p.k);
    require_operand(p.out, "out", p.m, p.n);
}

}  // namespace detail

// The views that the kernels read and write, for a product stored in this way.
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
        require(p.batches <= 1 || p.out.batch_stride > 0, "out.batch_stride: 0; ", p.batches,
                " products cannot share one result");
        a = detail::view_of(p.a, a_rows, a_columns, p.batches);
        b = detail::view_of(p.b, b_rows, b_width, p.batches);
        out = detail::view_of(p.out, p.m, p.n, p.batches);
    }
};

}  // namespace imbrex
