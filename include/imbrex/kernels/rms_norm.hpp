// RMSNorm over rows, with an optional fused residual add (fused_add_rms_norm), in one launch:
//
//     residual = x + residual                         if a residual is given; rounded once to its type
//     out = x / sqrt(mean(x^2) + epsilon) * weight    of the rounded sum, if there is a residual
//
//     rms_norm<bf16>::launch(world::device, {.x = as_rows<const bf16>(x, tokens, 4096),
//                                            .weight = weight,
//                                            .out = as_rows(normed, tokens, 4096),
//                                            .residual = as_rows(hidden, tokens, 4096),
//                                            .epsilon = 1e-5f}, stream);
//
// Rows are those of a matrix, or one row per (token, head) for QK norm (kernels/elementwise/row_view.hpp). Any number
// of columns and any row stride. Rows with a multiple of 8 columns, up to 16384, that start at 16-byte boundaries are
// read once with vectorised loads. Longer rows are read twice; unaligned rows are read twice, element by element.
// Elements are bf16, fp16 or float, and the weight may have another of these types. Sums are in float and the output is
// rounded once: models that round before the multiplication by the weight differ by that rounding.
//
// `out` may alias x but not the residual. A launch allocates nothing and does not synchronise. Invalid arguments throw
// `imbrex::error` before launch.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/elementwise/row_view.hpp>
#include <imbrex/kernels/rms_norm/kernel.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace imbrex {

template <class T, class Weight = T>
struct rms_norm_problem {
    static_assert((std::is_same_v<T, bf16> || std::is_same_v<T, fp16> ||
                   std::is_same_v<T, float>)&&(std::is_same_v<Weight, bf16> || std::is_same_v<Weight, fp16> ||
                                               std::is_same_v<Weight, float>),
                  "imbrex: rows and weights of RMSNorm are bf16, fp16 or float");

    row_view<const T> x;
    const Weight* weight = nullptr;  // one per column
    row_view<T> out;
    row_view<T> residual = {};  // optional
    float epsilon = 1e-6f;

    std::int64_t rows() const { return x.extents[0] * x.extents[1]; }
    bool empty() const { return rows() == 0 || x.columns() == 0; }
    bool has_residual() const { return residual.pointer != nullptr || residual.extents[0] != 0; }
};

template <class T, class Weight>
void require_rms_norm(const rms_norm_problem<T, Weight>& p) {
    using namespace detail;
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
    require(p.weight != nullptr, "weight: null; ", p.x.columns(), " elements are needed");
    require(!p.has_residual() || p.out.pointer != p.residual.pointer, "out.pointer: ", p.out.pointer,
            "; must differ from residual.pointer, which is written too");
}

inline namespace IMBREX_WORLDS {

template <class T, class Weight = T>
class rms_norm {
  public:
    using problem = rms_norm_problem<T, Weight>;
    using arguments = rms_norm_arguments<T, Weight>;
    template <int Columns, int WarpsPerRow>
    using kernel = rms_norm_kernel<T, Weight, Columns, WarpsPerRow>;
    template <row_alignment Known>
    using two_pass_kernel = rms_norm_two_pass_kernel<T, Weight, Known>;

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_rms_norm(p);
        if (p.empty()) return;
        const arguments args = arguments_of(p);
        const int columns = args.columns;
        if (!rows_are_vectorisable(p)) {
            launch_kernel<two_pass_kernel<row_alignment::unaligned>>(where, args, stream);
        } else if (columns <= 64) {
            launch_kernel<kernel<64, 1>>(where, args, stream);
        } else if (columns <= 128) {
            launch_kernel<kernel<128, 1>>(where, args, stream);
        } else if (columns <= 256) {
            launch_kernel<kernel<256, 1>>(where, args, stream);
        } else if (columns <= 512) {
            launch_kernel<kernel<512, 1>>(where, args, stream);
        } else if (columns <= 1024) {
            launch_kernel<kernel<512, 2>>(where, args, stream);
        } else if (columns <= 2048) {
            launch_kernel<kernel<512, 4>>(where, args, stream);
        } else if (columns <= 4096) {
            launch_kernel<kernel<512, 8>>(where, args, stream);
        } else if (columns <= 8192) {
            launch_kernel<kernel<512, 16>>(where, args, stream);
        } else if (columns <= 16384) {
            launch_kernel<kernel<512, 32>>(where, args, stream);
        } else {
            launch_kernel<two_pass_kernel<row_alignment::aligned>>(where, args, stream);
        }
    }

    static arguments arguments_of(const problem& p) {
        arguments args{.x = row_accessor_of(p.x),
                       .residual = {},
                       .out = row_accessor_of(p.out),
                       .weight = {p.weight},
                       .rows = static_cast<int>(p.rows()),
                       .columns = p.x.columns(),
                       .epsilon = p.epsilon};
        if (p.has_residual()) args.residual = row_accessor_of(p.residual);
        return args;
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const arguments& args, void* stream) {
        imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
    }

    static bool rows_are_vectorisable(const problem& p) {
        return detail::can_vectorise(p.x) && detail::can_vectorise(p.out) &&
               (!p.has_residual() || detail::can_vectorise(p.residual)) &&
               reinterpret_cast<std::uintptr_t>(p.weight) % 16 == 0;
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
