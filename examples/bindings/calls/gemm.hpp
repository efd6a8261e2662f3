// The arguments of the binding gemm, and the variant that takes them.
#pragma once

#include "../tensor.hpp"

#include <string>

namespace imbrex::bindings {

// out[m, n] = a[m, k] b[k, n] + bias. With a batch as the first dimension, a or b without one is shared. The strides of a
// and b say whether they are row-major or column-major: the transpose of a contiguous [n, k] is a column-major b.
struct gemm_call {
    tensor a, b, out;
    tensor bias = {};  // [n], optional
};

namespace detail {

// Whether the rows of the last two dimensions are contiguous, or the columns. Both are, if a size is 1.
inline bool has_contiguous(const tensor& t, int inner) {
    const int outer = 2 * t.rank - 3 - inner;
    return (t.sizes[inner] <= 1 || t.strides[inner] == 1) &&
           (t.sizes[outer] <= 1 || t.strides[outer] >= t.sizes[inner]);
}

inline const char* layout_of(const tensor& t, const char* name, bool prefers_columns) {
    require(t.rank == 2 || t.rank == 3, name, ": shape ", shape_of(t),
            "; [rows, columns] or [batch, rows, columns] is needed");
    const bool rows = has_contiguous(t, t.rank - 1), columns = has_contiguous(t, t.rank - 2);
    require(rows || columns, name, ".strides: ", t.strides[t.rank - 2], ", ", t.strides[t.rank - 1],
            "; rows or columns must be contiguous and must not overlap");
    return (prefers_columns ? columns : !rows) ? "matrix_layout::column_major" : "matrix_layout::row_major";
}

}  // namespace detail

// The template arguments: gemm, bf16, bf16, matrix_layout::row_major, matrix_layout::column_major, epilogue::identity
inline std::string gemm_variant(const gemm_call& c) {
    const std::string epilogue =
        c.bias.given() ? str_cat("epilogue::bias<", type_of(c.bias.type), ">") : std::string("epilogue::identity");
    return str_cat("gemm, ", type_of(c.a.type), ", ", type_of(c.out.type), ", ", detail::layout_of(c.a, "a", false),
                   ", ", detail::layout_of(c.b, "b", true), ", ", epilogue);
}

}  // namespace imbrex::bindings
