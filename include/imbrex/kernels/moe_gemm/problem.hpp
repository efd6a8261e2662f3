// The grouped GEMM of a mixture-of-experts layer as the caller states it: each row of D is the product of a row of A
// with the matrix of its expert,
//
//     D[row] = epilogue(A[token_of_row[row]] B[expert])     rows gathered: A has a row per token
//     D[row] = epilogue(A[row] B[expert])                   rows sorted: A has the rows of a routing, such as another D
//
// B is stored as [experts, n, k], and as [experts, 2 n, k], gate above up, with a GLU epilogue.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>

#include <cstdint>

namespace imbrex {

// Which rows A has.
enum class moe_rows {
    gathered,  // one per token: the kernel gathers the rows of an expert as it loads them
    sorted,    // those of the routing
};

template <class In, class Out>
struct moe_gemm_problem {
    int n = 0;
    int k = 0;
    moe_routing routing;
    gemm_operand<const In> a = {};  // [tokens, k] or [max_rows, k]
    gemm_operand<const In> b = {};  // [experts, n, k]; batch_stride 0: packed
    gemm_operand<Out> out = {};     // [max_rows, n]; rows without a token get values without a meaning
};

// The validated views that the kernel reads and writes. Quantised weights have no view.
template <class In, class Out, moe_rows Rows, bool IsGlu, bool IsQuantised = false>
struct moe_gemm_views {
    gemm_view<const In> a;
    gemm_view<const In> b;
    gemm_view<Out> out;

    explicit moe_gemm_views(const moe_gemm_problem<In, Out>& p) {
        const moe_sizes& sizes = p.routing.sizes;
        sizes.require_valid();
        p.routing.require_given();
        require(p.n >= 0, "n: ", p.n, "; the number of columns must not be negative");
        require(p.k >= 1, "k: ", p.k, "; must be positive");
        const int a_rows = Rows == moe_rows::gathered ? sizes.tokens : sizes.max_rows();
        const std::int64_t b_rows = std::int64_t{p.n} * (IsGlu ? 2 : 1);
        detail::require_operand(p.a, "a", a_rows, p.k);
        if (!IsQuantised) detail::require_operand(p.b, "b", b_rows, p.k);
        detail::require_operand(p.out, "out", sizes.max_rows(), p.n);
        gemm_operand<const In> experts = p.b;
        const std::int64_t b_stride = p.b.stride == 0 ? p.k : p.b.stride;
        if (experts.batch_stride == 0) experts.batch_stride = b_rows * b_stride;
        a = detail::view_of(p.a, a_rows, p.k, 1);
        b = detail::view_of(experts, b_rows, p.k, sizes.experts);
        out = detail::view_of(p.out, sizes.max_rows(), p.n, 1);
        require_aligned(a, "a");
        if (!IsQuantised) require_aligned(b, "b");
    }

  private:
    // TMA and cp.async read 16 bytes at a time.
    static void require_aligned(const gemm_view<const In>& view, const char* name) {
        constexpr int elements = 16 / static_cast<int>(sizeof(In));
        require(reinterpret_cast<std::uintptr_t>(view.pointer) % 16 == 0, name,
                ".pointer: ", static_cast<const void*>(view.pointer), "; must be a multiple of 16 bytes");
        require(view.strides[1] % elements == 0, name, ".stride: ", view.strides[1], "; must be a multiple of ",
                elements, " elements, 16 bytes");
        require(view.extents[0] == 1 || view.strides[0] % elements == 0, name, ".batch_stride: ", view.strides[0],
                "; must be a multiple of ", elements, " elements, 16 bytes");
    }
};

}  // namespace imbrex
