// The end of a mixture-of-experts layer: out[token] = sum over its choices of weight * y[row of the choice], in the order
// of the choices and in float, so the result does not depend on the schedule.
//
//     moe_combine<bf16>::launch(world::device, {.y = {y}, .routing = routing, .out = as_rows(out, tokens, n)}, stream);
//
// `residual` is added if it is given; it may be `out`. bf16, fp16 and float, any number of columns. A launch allocates
// nothing and does not synchronise. Invalid arguments throw imbrex::error before launch.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/static_for.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/gemm/problem.hpp>
#include <imbrex/kernels/moe_router/routing.hpp>
#include <imbrex/kernels/row_tiles.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/memory/atomic.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace imbrex {

// RowsAtOnce: rows of y whose loads are in flight.
template <class T, int Columns, row_alignment Known, int RowsAtOnce>
struct moe_combine_kernel : row_tiles_kernel<moe_combine_kernel<T, Columns, Known, RowsAtOnce>> {
    struct arguments {
        row_accessor<const T> y;  // sorted rows
        row_accessor<const T> residual;
        row_accessor<T> out;
        const int* row_of_choice;
        const float* weight_of_choice;
        int top_k;
        row_tiles<1, Columns> all;
    };

    IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int token, int column) {
        if (token >= args.all.rows) return;
        const int columns = args.all.columns - column;
        using row = vector_row_tile<T, 1, Columns>;
        vector_row_tile<float, 1, Columns> sum;
        row before;
        const auto load_row = [&](row& to, const T* from) {
            load_rows_from<Known>(
                self, to, [=](int) { return from; }, columns);
        };
        load_row(before, args.residual.given() ? args.residual.at(token, column) : nullptr);
        transform(
            self, sum, [](float x) { return x; }, before);
        const std::int64_t choices = std::int64_t{token} * args.top_k;
        for (int first = 0; first < args.top_k; first += RowsAtOnce) {
            const int* const rows = args.row_of_choice + choices + first;
            const int left = args.top_k - first;
            row values[RowsAtOnce];
            static_for<RowsAtOnce>(
                [&](auto i) { load_row(values[i], i < left ? args.y.at(get(self, rows + i), column) : nullptr); });
            static_for<RowsAtOnce>([&](auto i) {
                if (i >= left) return;
                const float weight = get(self, args.weight_of_choice + choices + first + i);
                transform(
                    self, sum, [=](float total, float x) { return hw::fma(weight, x, total); }, sum, values[i]);
            });
        }
        row done;
        transform(
            self, done, [](float x) { return x; }, sum);
        store_rows_to<Known>(self, row_pointers<T>{args.out, token, args.all.rows, column}, done, columns);
    }
};

template <class T>
struct moe_combine_problem {
    gemm_operand<const T> y = {};  // [max_rows, n], the rows of the routing
    moe_routing routing;
    row_view<const T> residual = {};  // [tokens, n], optional
    row_view<T> out = {};             // [tokens, n]
};

inline namespace IMBREX_WORLDS {

template <class T>
class moe_combine {
    static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, float>,
                  "imbrex: the rows of moe_combine are bf16, fp16 or float");

  public:
    using problem = moe_combine_problem<T>;
    template <int Columns, row_alignment Known, int RowsAtOnce>
    using kernel = moe_combine_kernel<T, Columns, Known, RowsAtOnce>;
    // With few tokens a row waits for memory; with many the other warps hide that, and one row at a time is faster.
    static constexpr int few_tokens = 512;

    // Runs the launch in the checked host world, with these further arguments of `launch`, under many schedules. Returns
    // the first hazard, or none.
    template <class... More>
    static std::optional<hazard> check(const problem& p, const host::check_options& options = {}, const More&... more) {
        return host::check_launches([&] { launch(world::host_checked, p, more...); }, options);
    }

    static void launch(world where, const problem& p, void* stream = nullptr) {
        const moe_sizes& sizes = p.routing.sizes;
        sizes.require_valid();
        p.routing.require_given();
        detail::require_rows(p.out, "out");
        detail::require_disjoint_rows(p.out, "out");
        const std::int64_t rows = p.out.extents[0] * p.out.extents[1];
        require(rows == sizes.tokens, "out: ", rows, " rows; routing.sizes.tokens is ", sizes.tokens);
        if (p.residual.pointer != nullptr) {
            detail::require_rows(p.residual, "residual");
            detail::require_same_rows(p.residual, "residual", p.out, "out");
        }
        detail::require_operand(p.y, "y", sizes.max_rows(), p.out.columns());
        if (rows == 0 || p.out.columns() == 0) return;
        const auto y = as_rows(p.y.pointer, sizes.max_rows(), p.out.columns(), p.y.stride);
        const bool aligned = detail::can_vectorise(p.out) && detail::can_vectorise(y) &&
                             (p.residual.pointer == nullptr || detail::can_vectorise(p.residual));
        if (!aligned) {
            launch_kernel<kernel<256, row_alignment::unaligned, 1>>(where, p, y, stream);
        } else if (sizes.tokens <= few_tokens) {
            launch_kernel<kernel<256, row_alignment::aligned, 4>>(where, p, y, stream);
        } else {
            launch_kernel<kernel<256, row_alignment::aligned, 1>>(where, p, y, stream);
        }
    }

  private:
    template <class Kernel>
    static void launch_kernel(world where, const problem& p, const row_view<const T>& y, void* stream) {
        launch_row_tiles<Kernel>(where,
                                 {.y = row_accessor_of(y),
                                  .residual = row_accessor_of(p.residual),
                                  .out = row_accessor_of(p.out),
                                  .row_of_choice = p.routing.row_of_choice,
                                  .weight_of_choice = p.routing.weight_of_choice,
                                  .top_k = p.routing.sizes.top_k,
                                  .all = {p.routing.sizes.tokens, p.out.columns()}},
                                 stream);
    }
};

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
