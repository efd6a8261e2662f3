// LayerNorm over rows, with an optional fused residual add, in one launch:
//
//     residual = x + residual                                       if a residual is given; rounded once to its type
//     out = (x - mean(x)) / sqrt(var(x) + epsilon) * weight + bias  of the rounded sum, if there is a residual
//
//     layer_norm<bf16>::launch(world::device, {.x = as_rows<const bf16>(x, tokens, 4096),
//                                              .weight = weight,
//                                              .bias = bias,
//                                              .out = as_rows(normed, tokens, 4096),
//                                              .residual = as_rows(hidden, tokens, 4096),
//                                              .epsilon = 1e-5f}, stream);
//
// A null weight counts as 1, a null bias as 0 (elementwise_affine=False). Rows, alignments, element types and rounding
// are those of RMSNorm (kernels/rms_norm.hpp); bias and weight have the same type. The variance is that of the whole
// row, divided by the number of columns. It is summed from deviations: a mean far from zero costs no accuracy, as it
// would in mean(x^2) - mean(x)^2.
//
// `out` may alias x but not the residual. A launch allocates nothing and does not synchronise. Invalid arguments throw
// `imbrex::error` before launch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/norm/kernel.hpp>
#include <imbrex/kernels/norm/launch.hpp>
#include <imbrex/kernels/norm/problem.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>
#include <optional>

namespace imbrex {

template <class T, class Weight = T>
struct layer_norm_problem {
    static_assert(norm_element<T> && norm_element<Weight>,
                  "imbrex: rows and weights of LayerNorm are bf16, fp16 or float");

    row_view<const T> x;
    const Weight* weight = nullptr;  // one per column; null: 1
    const Weight* bias = nullptr;    // one per column; null: 0
    row_view<T> out;
    row_view<T> residual = {};  // optional
    float epsilon = 1e-5f;

    std::int64_t rows() const { return x.extents[0] * x.extents[1]; }
    bool empty() const { return rows() == 0 || x.columns() == 0; }
    bool has_residual() const { return residual.pointer != nullptr || residual.extents[0] != 0; }
};

template <class T, class Weight>
struct layer_norm_arguments : norm_arguments<T, Weight> {
    const Weight* bias;
};

namespace detail {

// Count, mean and sum of squared deviations from the mean, of a part of a row.
struct moments {
    float count, mean, squares;

    // Those of both parts (Chan, Golub and LeVeque). The other one is not empty.
    IMBREX_FN void merge(const moments& other) {
        const float sum = count + other.count, share = other.count / sum, difference = other.mean - mean;
        squares += other.squares + difference * count * share * difference;
        mean += difference * share;
        count = sum;
    }
};

struct add_deviation {
    IMBREX_FN float operator()(float sum, float x, float mean) const { return sum + (x - mean); }
};
struct add_squared_deviation {
    IMBREX_FN float operator()(float sum, float x, float mean) const { return sum + (x - mean) * (x - mean); }
};

// The moments of each row of a tile that the warp holds.
template <class Tile>
struct row_moments {
    vector_row_values<Tile> mean, squares;
    int count;

    // Of the first `columns` columns; there may be none, or more than the tile has. The mean deviation from the first
    // mean is its rounding error, and is added: the mean of equal elements is exactly that element.
    template <row_alignment Known>
    IMBREX_KERNEL void compute(const warp& self, const Tile& x, int columns, source here = source::current()) {
        count = columns < 0 ? 0 : columns > Tile::columns ? Tile::columns : columns;
        const float divisor = static_cast<float>(count > 0 ? count : 1);
        fill(self, mean, 0.0f, here);
        fold_rows(self, mean, x, functional::add{}, here);
        finish_rows(self, mean, functional::add{}, here);
        map(
            self, mean, [=](float sum) { return sum / divisor; }, here);
        vector_row_values<Tile> error;
        fill(self, error, 0.0f, here);
        fold_rows<Known>(self, error, x, add_deviation{}, mean, count, here);
        finish_rows(self, error, functional::add{}, here);
        combine(
            self, mean, error, [=](float first, float sum) { return first + sum / divisor; }, here);
        fill(self, squares, 0.0f, here);
        fold_rows<Known>(self, squares, x, add_squared_deviation{}, mean, count, here);
        finish_rows(self, squares, functional::add{}, here);
    }

    // Those of the only row.
    IMBREX_KERNEL moments get(const warp& self, source here = source::current()) const {
        return {static_cast<float>(count), row_value(self, mean, here), row_value(self, squares, here)};
    }
    IMBREX_KERNEL void set(const warp& self, const moments& of_row, source here = source::current()) {
        fill(self, mean, of_row.mean, here);
        fill(self, squares, of_row.squares, here);
    }
};

// The moments of a row from those of its warps, one per lane. All warps get the same bits.
template <int Warps>
IMBREX_KERNEL moments cross_warp_moments(const warp& self, cross_warp_exchange<moments, Warps>& shared,
                                         const moments& mine, int columns, source here = source::current()) {
    shared.publish(self, mine, here);
    const auto of_warps = shared.gather(self, here);
    const float count = static_cast<float>(columns), first = warp_broadcast(self, of_warps, 0, here).mean;
    const auto difference = [=](const moments& one) { return one.count * (one.mean - first); };
    const float mean = first + warp_sum(self, of_warps, difference, here) / count;
    const auto squares = [=](const moments& one) {
        return one.squares + one.count * (one.mean - mean) * (one.mean - mean);
    };
    return {count, mean, warp_sum(self, of_warps, squares, here)};
}

// Weight and bias of the columns of a tile.
template <class Weight, int Columns>
struct layer_norm_affine {
    vector_row_column_values<Weight, Columns> weight, bias;

    template <class Rows>
    IMBREX_KERNEL void load(const warp& self, const Rows& part, source here = source::current()) {
        load_or_fill(self, part, weight, part.args.weight, 1.0f, here);
        load_or_fill(self, part, bias, part.args.bias, 0.0f, here);
    }

  private:
    template <class Rows>
    IMBREX_KERNEL static void load_or_fill(const warp& self, const Rows& part,
                                           vector_row_column_values<Weight, Columns>& to, const Weight* from,
                                           float otherwise, source here) {
        if (from != nullptr) {
            part.load_columns(self, to, from, here);
        } else {
            fill(self, to, convert<Weight>(otherwise), here);
        }
    }
};

struct normalise_and_scale {
    IMBREX_FN float operator()(float x, float mean, float rstd, float weight, float bias) const {
        return (x - mean) * rstd * weight + bias;
    }
};

}  // namespace detail

// A row is read once and kept in registers.
//
//   each warp    loads its columns of x and, if given, of the residual
//                adds the residual, rounds and stores it
//                sums the elements to a mean, deviations to correct it, then squared deviations
//   barrier      between the warps that share a row; each merges the means and sums
//   each warp    loads its columns of weight and bias, scales and stores
//
// Weight and bias come last: held during the reductions, they would take the registers of another block per SM.
template <class T, class Weight, int Columns, int WarpsPerRow>
struct layer_norm_kernel : norm_kernel<layer_norm_kernel<T, Weight, Columns, WarpsPerRow>, T, Columns, WarpsPerRow> {
    using frame = norm_kernel<layer_norm_kernel, T, Columns, WarpsPerRow>;
    using tile = typename frame::tile;
    static constexpr int min_blocks_per_sm = WarpsPerRow == 1 || sizeof(T) + sizeof(Weight) > 4
                                                 ? 1
                                                 : norm_blocks_per_sm(frame::warps, 40);
    using arguments = layer_norm_arguments<T, Weight>;
    using shared_memory = cross_warp_exchange<detail::moments, WarpsPerRow>;

    template <class Rows>
    IMBREX_KERNEL static void normalise(const warp& self, const Rows& part, shared_memory& shared) {
        tile x;
        part.load_x(self, x);
        part.add_residual(self, x);
        detail::row_moments<tile> row;
        row.template compute<row_alignment::aligned>(self, x, part.columns);
        if constexpr (WarpsPerRow > 1)
            row.set(self, detail::cross_warp_moments(self, shared, row.get(self), part.args.columns));
        map(self, row.squares, [&](float sum) { return part.args.rstd_of(sum); });
        detail::layer_norm_affine<Weight, Columns> affine;
        affine.load(self, part);
        transform(self, x, detail::normalise_and_scale{}, x, row.mean, row.squares, affine.weight, affine.bias);
        part.store_out(self, x);
    }
};

// A row is read twice: for the moments, a tile after the other, and to scale.
template <class T, class Weight, row_alignment Known>
struct layer_norm_two_pass_kernel : two_pass_norm_kernel<layer_norm_two_pass_kernel<T, Weight, Known>, T, Known> {
    using frame = two_pass_norm_kernel<layer_norm_two_pass_kernel, T, Known>;
    using tile = typename frame::tile;
    static constexpr int min_blocks_per_sm = sizeof(T) + sizeof(Weight) > 4 ? 1 : norm_blocks_per_sm(frame::warps, 40);
    using arguments = layer_norm_arguments<T, Weight>;
    using shared_memory = cross_warp_exchange<detail::moments, frame::warps>;

    IMBREX_KERNEL static void normalise(const warp& self, const arguments& args, int row, shared_memory& shared) {
        detail::moments mine{};
        frame::each_tile(self, args, row, [&](const auto& part) {
            tile x;
            part.load_x(self, x);
            part.add_residual(self, x);
            detail::row_moments<tile> of_tile;
            of_tile.template compute<Known>(self, x, part.columns);
            mine.merge(of_tile.get(self));
        });
        const detail::moments all = detail::cross_warp_moments(self, shared, mine, args.columns);
        const float mean = all.mean, rstd = args.rstd_of(all.squares);
        frame::each_tile(self, args, row, [&](const auto& part) {
            tile x;
            part.reload(self, x);
            detail::layer_norm_affine<Weight, tile::columns> affine;
            affine.load(self, part);
            transform(
                self, x,
                [=](float value, float weight, float bias) {
                    return detail::normalise_and_scale{}(value, mean, rstd, weight, bias);
                },
                x, affine.weight, affine.bias);
            part.store_out(self, x);
        });
    }
};

inline namespace IMBREX_WORLDS {

template <class T, class Weight = T>
class layer_norm {
  public:
    using problem = layer_norm_problem<T, Weight>;
    using arguments = layer_norm_arguments<T, Weight>;
    template <int Columns, int WarpsPerRow>
    using kernel = layer_norm_kernel<T, Weight, Columns, WarpsPerRow>;
    template <row_alignment Known>
    using two_pass_kernel = layer_norm_two_pass_kernel<T, Weight, Known>;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        detail::require_norm(p);
        if (p.empty()) return;
        const arguments args = arguments_of(p);
        norm_launcher<layer_norm>{where, args, stream}.launch(detail::norm_alignment(p, p.weight, p.bias));
    }

    static arguments arguments_of(const problem& p) { return {detail::norm_arguments_of<T, Weight>(p), p.bias}; }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
