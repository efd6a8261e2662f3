// What the problems of RMSNorm and LayerNorm have in common: rows `x` and `out`, an optional `residual`, a `weight` and
// `epsilon`. Their requirements, and the arguments that their kernels get.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/kernels/row_view.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace imbrex {

// Types of rows and weights.
template <class T>
concept norm_element = std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>;

template <class T, class Weight>
struct norm_arguments {
    row_accessor<const T> x;
    row_accessor<T> residual;  // null: none
    row_accessor<T> out;
    const Weight* weight;  // one per column
    int rows;
    int columns;
    float epsilon;

    // The reciprocal of the root mean square.
    IMBREX_KERNEL float rstd_of(float sum_of_squares) const {
        return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(columns) + epsilon);
    }
};

namespace detail {

template <class Problem>
void require_norm(const Problem& p) {
    require_rows(p.x, "x");
    require_rows(p.out, "out");
    require_same_rows(p.out, "out", p.x, "x");
    require_disjoint_rows(p.out, "out");
    if (p.has_residual()) {
        require_rows(p.residual, "residual");
        require_same_rows(p.residual, "residual", p.x, "x");
        require_disjoint_rows(p.residual, "residual");
    }
    require(std::isfinite(p.epsilon) && p.epsilon >= 0, "epsilon: ", p.epsilon, "; must be finite and not negative");
    if (p.empty()) return;
    require(!p.has_residual() || p.out.pointer != p.residual.pointer, "out.pointer: ", p.out.pointer,
            "; must differ from residual.pointer, which is written too");
}

template <class T, class Weight, class Problem>
norm_arguments<T, Weight> norm_arguments_of(const Problem& p) {
    norm_arguments<T, Weight> args{.x = row_accessor_of(p.x),
                                   .residual = {},
                                   .out = row_accessor_of(p.out),
                                   .weight = p.weight,
                                   .rows = static_cast<int>(p.rows()),
                                   .columns = p.x.columns(),
                                   .epsilon = p.epsilon};
    if (p.has_residual()) args.residual = row_accessor_of(p.residual);
    return args;
}

// Whether rows, and the values of their columns, can be moved in 16-byte vectors.
template <class Problem, class... ColumnValues>
row_alignment norm_alignment(const Problem& p, const ColumnValues*... values) {
    const bool aligned = can_vectorise(p.x) && can_vectorise(p.out) &&
                         (!p.has_residual() || can_vectorise(p.residual)) &&
                         ((reinterpret_cast<std::uintptr_t>(values) % 16 == 0) && ...);
    return aligned ? row_alignment::aligned : row_alignment::unaligned;
}

}  // namespace detail

}  // namespace imbrex
