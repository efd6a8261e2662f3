// gemm behind a plain function (../variant.hpp).
#pragma once

#include "../calls/gemm.hpp"
#include "../variant.hpp"

#include <imbrex/kernels/gemm.hpp>

#include <cstdint>

namespace imbrex::bindings {

namespace detail {

// The sizes of a product, and the operands of its tensors.
struct gemm_sizes {
    int m, n, k, batches;
};

inline int gemm_size(std::int64_t size, const char* name, int dimension) {
    require(size <= 2147483647, name, ".sizes[", dimension, "]: ", size, "; at most 2147483647 is allowed");
    return static_cast<int>(size);
}

inline gemm_sizes gemm_sizes_of(const gemm_call& c) {
    const tensor &a = c.a, &b = c.b, &out = c.out;
    require(out.rank == 2 || out.rank == 3, "out: shape ", shape_of(out), "; [m, n] or [batch, m, n] is needed");
    const int rows = out.rank - 2, columns = out.rank - 1;
    const gemm_sizes made{gemm_size(out.sizes[rows], "out", rows), gemm_size(out.sizes[columns], "out", columns),
                          gemm_size(a.sizes[a.rank - 1], "a", a.rank - 1),
                          out.rank == 3 ? gemm_size(out.sizes[0], "out", 0) : 1};
    const auto require_shape = [&](const tensor& t, const char* name, int t_rows, int t_columns) {
        const bool fits = t.rank <= out.rank && t.sizes[t.rank - 2] == t_rows && t.sizes[t.rank - 1] == t_columns;
        require(fits && (t.rank == 2 || t.sizes[0] == made.batches), name, ": shape ", shape_of(t), "; ",
                out.rank == 3 ? str_cat("[", made.batches, ", ", t_rows, ", ", t_columns, "] or ") : std::string(), "[",
                t_rows, ", ", t_columns, "] is needed: a has ", made.k, " columns, and out the shape ", shape_of(out));
    };
    require_shape(a, "a", made.m, made.k);
    require_shape(b, "b", made.k, made.n);
    return made;
}

// `row`: the dimension whose elements are rows in memory.
template <class T>
gemm_operand<T> gemm_operand_of(const tensor& t, const char* name, int row) {
    gemm_operand<T> made{.pointer = data_of<T>(t, name)};
    if (t.sizes[row] > 1) made.stride = t.strides[row];
    if (t.rank == 3 && t.sizes[0] > 1) made.batch_stride = t.strides[0];
    return made;
}

}  // namespace detail

inline namespace IMBREX_WORLDS {

template <class In, class Out, matrix_layout A, matrix_layout B, class Epilogue>
struct gemm {
    using call = gemm_call;
    using launcher = imbrex::gemm<In, Out, gemm_options{.a = A, .b = B}, Epilogue>;

    static void run(const execution& on, const call& c) {
        const detail::gemm_sizes sizes = detail::gemm_sizes_of(c);
        const gemm_problem<In, Out> p{sizes.m,
                                      sizes.n,
                                      sizes.k,
                                      detail::gemm_operand_of<const In>(c.a, "a", row_of(c.a, A)),
                                      detail::gemm_operand_of<const In>(c.b, "b", row_of(c.b, B)),
                                      detail::gemm_operand_of<Out>(c.out, "out", c.out.rank - 2),
                                      sizes.batches};
        detail::require_last_stride(c.out, "out");
        launch_or_check<launcher>(on, p, epilogue_of(c, sizes.n));
    }

  private:
    static int row_of(const tensor& t, matrix_layout layout) {
        return layout == matrix_layout::row_major ? t.rank - 2 : t.rank - 1;
    }
    static Epilogue epilogue_of(const call& c, int n) {
        if constexpr (requires(Epilogue e) { e.vector; }) {
            using bias = std::remove_cvref_t<decltype(*Epilogue{}.vector.pointer)>;
            return {{elements_of<const bias>(c.bias, "bias", n), n}};
        } else {
            require(!c.bias.given(), "bias: given; this variant has none");
            return {};
        }
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex::bindings
