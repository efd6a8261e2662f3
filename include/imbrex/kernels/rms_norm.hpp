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
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
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

// The RMSNorm kernels. A row is read once and kept in registers, 512 columns per warp: a warp holds several short rows,
// and the warps of a block share a long one. Rows that are longer than that, or not aligned to 16 bytes, use the
// two-pass kernel.
//
//   each warp    loads its columns of x, of the weight and, if given, of the residual
//                adds the residual, rounds and stores it
//                sums squares
//   barrier      between the warps that share a row; each adds the partial sums in the same order
//   each warp    scales and stores

template <class T, class Weight>
struct rms_norm_arguments {
    row_accessor<const T> x;
    row_accessor<T> residual;  // null: none
    row_accessor<T> out;
    row_accessor<const Weight> weight;  // one row
    int rows;
    int columns;
    float epsilon;

    IMBREX_KERNEL float rstd_of(float sum_of_squares) const {
        return 1.0f / std::sqrt(sum_of_squares / static_cast<float>(columns) + epsilon);
    }
};

namespace detail {

struct scale_by_weight {
    IMBREX_FN float operator()(float x, float rstd, float weight) const { return x * rstd * weight; }
};

// Cross-warp reduction. Each warp adds the partial sums in the same order, so all get the same bits.
template <int WarpsPerRow>
struct cross_warp_sum {
    struct all_warps {};
    shared_vector<float, WarpsPerRow> of_warps;

    IMBREX_KERNEL float total(const warp& self, float mine, source here = source::current()) {
        put(self, of_warps, self.index(), mine, here);
        named_barriers<all_warps>::template of<all_warps>().sync(self, WarpsPerRow, here);
        float sum = 0;
        for (int i = 0; i < WarpsPerRow; ++i) sum += get(self, of_warps, i, here);
        return sum;
    }
};

}  // namespace detail

// Rows of up to Columns * WarpsPerRow columns. With one warp per row, a warp holds 512 / Columns rows.
template <class T, class Weight, int Columns, int WarpsPerRow>
struct rms_norm_kernel {
    static_assert(Columns == 512 || (Columns < 512 && WarpsPerRow == 1), "imbrex: a warp holds 512 elements");
    static constexpr int rows_per_warp = 512 / Columns;
    static constexpr int warps = WarpsPerRow == 1 ? 4 : WarpsPerRow;
    // Occupancy for 48 registers per thread, enough for 16-bit elements: while some blocks wait at their barrier,
    // others keep memory requests in flight.
    static constexpr int min_blocks_per_sm =
        WarpsPerRow == 1 || sizeof(T) + sizeof(Weight) > 4 || warps > 21 ? 1 : 42 / warps;
    static constexpr bool uses_pdl = true;
    using arguments = rms_norm_arguments<T, Weight>;
    using shared_memory = detail::cross_warp_sum<WarpsPerRow>;

    static grid_dim grid_of(const arguments& args) {
        constexpr int in_block = rows_per_warp * (warps / WarpsPerRow);
        return {(args.rows - 1) / in_block + 1};
    }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp(normalise{args, shared, block.index().x * (warps / WarpsPerRow)});
    }

  private:
    using tile = vector_row_tile<T, rows_per_warp, Columns>;
    static constexpr row_alignment vectorised = row_alignment::aligned;

    struct normalise {
        const arguments& args;
        shared_memory& shared;
        int first_of_block;

        IMBREX_KERNEL void operator()(const warp& self) const {
            const int row = (first_of_block + (WarpsPerRow == 1 ? self.index() : 0)) * rows_per_warp;
            if (row >= args.rows) return;
            const int column = WarpsPerRow == 1 ? 0 : self.index() * Columns;
            const int columns = args.columns - column;
            tile x;
            load_rows_from<vectorised>(self, x, row_pointers<const T>{args.x, row, args.rows, column}, columns);
            vector_row_column_values<Weight, Columns> weight;
            load<vectorised>(self, weight, args.weight.at(0, column), columns);
            if (args.residual.given()) {
                const row_pointers<T> place{args.residual, row, args.rows, column};
                tile more;
                load_rows_from<vectorised>(self, more, place, columns);
                transform(self, x, functional::add{}, x, more);
                store_rows_to<vectorised>(self, place, x, columns);
            }
            vector_row_values<tile> rstd;
            fill(self, rstd, 0.0f);
            fold_rows(self, rstd, x, functional::add_square{});
            finish_rows(self, rstd, functional::add{});
            if constexpr (WarpsPerRow > 1) fill(self, rstd, shared.total(self, row_value(self, rstd)));
            map(self, rstd, [&](float sum) { return args.rstd_of(sum); });
            transform(self, x, detail::scale_by_weight{}, x, rstd, weight);
            store_rows_to<vectorised>(self, row_pointers<T>{args.out, row, args.rows, column}, x, columns);
        }
    };
};

// Rows of any length and alignment: one block per row.
template <class T, class Weight, row_alignment Known>
struct rms_norm_two_pass_kernel {
    static constexpr int warps = 8;
    static constexpr bool uses_pdl = true;
    using arguments = rms_norm_arguments<T, Weight>;
    using shared_memory = detail::cross_warp_sum<warps>;

    static grid_dim grid_of(const arguments& args) { return {args.rows}; }

    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp(normalise{args, shared, block.index().x});
    }

  private:
    static constexpr int columns_per_warp = 256;
    using tile = vector_row_tile<T, 1, columns_per_warp>;

    struct normalise {
        const arguments& args;
        shared_memory& shared;
        int row;

        IMBREX_KERNEL void operator()(const warp& self) const {
            vector_row_values<tile> rstd;
            fill(self, rstd, 0.0f);
            for (int column = first(self); column < args.columns; column += step) {
                tile x;
                load_from(self, x, args.x, column);
                if (args.residual.given()) {
                    tile more;
                    load_from(self, more, args.residual, column);
                    transform(self, x, functional::add{}, x, more);
                    store_to(self, args.residual, x, column);
                }
                fold_rows(self, rstd, x, functional::add_square{});
            }
            finish_rows(self, rstd, functional::add{});
            fill(self, rstd, args.rstd_of(shared.total(self, row_value(self, rstd))));
            // A lane rereads only elements that it read or wrote itself: no barrier is needed.
            for (int column = first(self); column < args.columns; column += step) {
                tile x;
                if (args.residual.given()) {
                    load_from(self, x, args.residual, column);
                } else {
                    load_from(self, x, args.x, column);
                }
                vector_row_column_values<Weight, columns_per_warp> weight;
                load<Known>(self, weight, args.weight.at(0, column), args.columns - column);
                transform(self, x, detail::scale_by_weight{}, x, rstd, weight);
                store_to(self, args.out, x, column);
            }
        }

      private:
        static constexpr int step = warps * columns_per_warp;

        IMBREX_KERNEL static int first(const warp& self) { return self.index() * columns_per_warp; }
        template <class Element>
        IMBREX_KERNEL void load_from(const warp& self, tile& to, const row_accessor<Element>& from, int column) const {
            load_rows_from<Known>(self, to, row_pointers<Element>{from, row, args.rows, column}, args.columns - column);
        }
        IMBREX_KERNEL void store_to(const warp& self, const row_accessor<T>& to, const tile& from, int column) const {
            store_rows_to<Known>(self, row_pointers<T>{to, row, args.rows, column}, from, args.columns - column);
        }
    };
};

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
