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
// Rows are those of a matrix, or one row per (token, head) for QK norm (kernels/row_view.hpp). Any number
// of columns and any row stride. Rows with a multiple of 8 columns, up to 16384, that start at 16-byte boundaries are
// read once with vectorised loads. Longer rows are read twice; unaligned rows are read twice, element by element.
// Elements are bf16, fp16 or float, and the weight may have another of these types. Sums are in float and the output is
// rounded once: models that round before the multiplication by the weight differ by that rounding.
//
// `out` may alias x but not the residual. A launch allocates nothing and does not synchronise. Invalid arguments throw
// `imbrex::error` before launch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/norm/kernel.hpp>
#include <imbrex/kernels/norm/launch.hpp>
#include <imbrex/kernels/norm/problem.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>
#include <optional>

namespace imbrex {

template <class T, class Weight = T>
struct rms_norm_problem {
    static_assert(norm_element<T> && norm_element<Weight>,
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
    detail::require_norm(p);
    require(p.empty() || p.weight != nullptr, "weight: null; ", p.x.columns(), " elements are needed");
}

namespace detail {

struct scale_by_weight {
    IMBREX_FN float operator()(float x, float rstd, float weight) const { return x * rstd * weight; }
};

// Each warp adds the partial sums in the same order, so all get the same bits.
template <int Warps>
IMBREX_KERNEL float cross_warp_sum(const warp& self, cross_warp_exchange<float, Warps>& shared, float mine,
                                   source here = source::current()) {
    shared.publish(self, mine, here);
    float sum = 0;
    for (int i = 0; i < Warps; ++i) sum += shared.of(self, i, here);
    return sum;
}

}  // namespace detail

// A row is read once and kept in registers.
//
//   each warp    loads its columns of x, of the weight and, if given, of the residual
//                adds the residual, rounds and stores it
//                sums squares
//   barrier      between the warps that share a row; each adds the partial sums
//   each warp    scales and stores
template <class T, class Weight, int Columns, int WarpsPerRow>
struct rms_norm_kernel : norm_kernel<rms_norm_kernel<T, Weight, Columns, WarpsPerRow>, T, Columns, WarpsPerRow> {
    using frame = norm_kernel<rms_norm_kernel, T, Columns, WarpsPerRow>;
    using tile = typename frame::tile;
    static constexpr int min_blocks_per_sm = WarpsPerRow == 1 || sizeof(T) + sizeof(Weight) > 4
                                                 ? 1
                                                 : norm_blocks_per_sm(frame::warps, 42);
    using arguments = norm_arguments<T, Weight>;
    using shared_memory = cross_warp_exchange<float, WarpsPerRow>;

    template <class Rows>
    IMBREX_KERNEL static void normalise(const warp& self, const Rows& part, shared_memory& shared) {
        tile x;
        part.load_x(self, x);
        vector_row_column_values<Weight, Columns> weight;
        part.load_columns(self, weight, part.args.weight);
        part.add_residual(self, x);
        vector_row_values<tile> rstd;
        fill(self, rstd, 0.0f);
        fold_rows(self, rstd, x, functional::add_square{});
        finish_rows(self, rstd, functional::add{});
        if constexpr (WarpsPerRow > 1) fill(self, rstd, detail::cross_warp_sum(self, shared, row_value(self, rstd)));
        map(self, rstd, [&](float sum) { return part.args.rstd_of(sum); });
        transform(self, x, detail::scale_by_weight{}, x, rstd, weight);
        part.store_out(self, x);
    }
};

// A row is read twice: to sum squares, and to scale.
template <class T, class Weight, row_alignment Known>
struct rms_norm_two_pass_kernel : two_pass_norm_kernel<rms_norm_two_pass_kernel<T, Weight, Known>, T, Known> {
    using frame = two_pass_norm_kernel<rms_norm_two_pass_kernel, T, Known>;
    using tile = typename frame::tile;
    static constexpr int min_blocks_per_sm = sizeof(T) + sizeof(Weight) > 4 ? 1 : norm_blocks_per_sm(frame::warps, 42);
    using arguments = norm_arguments<T, Weight>;
    using shared_memory = cross_warp_exchange<float, frame::warps>;

    IMBREX_KERNEL static void normalise(const warp& self, const arguments& args, int row, shared_memory& shared) {
        vector_row_values<tile> rstd;
        fill(self, rstd, 0.0f);
        frame::each_tile(self, args, row, [&](const auto& part) {
            tile x;
            part.load_x(self, x);
            part.add_residual(self, x);
            fold_rows(self, rstd, x, functional::add_square{});
        });
        finish_rows(self, rstd, functional::add{});
        fill(self, rstd, args.rstd_of(detail::cross_warp_sum(self, shared, row_value(self, rstd))));
        frame::each_tile(self, args, row, [&](const auto& part) {
            tile x;
            part.reload(self, x);
            vector_row_column_values<Weight, tile::columns> weight;
            part.load_columns(self, weight, part.args.weight);
            transform(self, x, detail::scale_by_weight{}, x, rstd, weight);
            part.store_out(self, x);
        });
    }
};

inline namespace IMBREX_WORLDS {

template <class T, class Weight = T>
class rms_norm {
  public:
    using problem = rms_norm_problem<T, Weight>;
    using arguments = norm_arguments<T, Weight>;
    template <int Columns, int WarpsPerRow>
    using kernel = rms_norm_kernel<T, Weight, Columns, WarpsPerRow>;
    template <row_alignment Known>
    using two_pass_kernel = rms_norm_two_pass_kernel<T, Weight, Known>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        require_rms_norm(p);
        if (p.empty()) return;
        const arguments args = arguments_of(p);
        norm_launcher<rms_norm>{where, args, stream}.launch(detail::norm_alignment(p, p.weight));
    }

    static arguments arguments_of(const problem& p) { return detail::norm_arguments_of<T, Weight>(p); }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
