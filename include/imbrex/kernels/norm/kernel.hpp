// The frames of the kernels of RMSNorm and LayerNorm: how rows are divided over warps and blocks, how a warp reads,
// adds and writes its part of them, and how the warps of a row exchange partial results. A kernel derives from a frame
// and adds the arithmetic, `normalise`:
//
//     struct my_kernel : norm_kernel<my_kernel, T, Columns, WarpsPerRow> {
//         IMBREX_KERNEL static void normalise(const warp& self, const norm_rows<...>& part, shared_memory& shared);
//     };
//
// norm_kernel reads a row once and keeps it in registers, 512 columns per warp: a warp holds several short rows, and
// the warps of a block share a long one. two_pass_norm_kernel, one block per row, takes rows of any length and
// alignment: a tile after the other, once for the statistics and once for the output.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/functional.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/block/shared.hpp>
#include <imbrex/ops/grid/pdl.hpp>
#include <imbrex/ops/register/vector_row.hpp>
#include <imbrex/ops/warp/gather.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/shared_tile.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// The rows from `row` on and their columns from `column` on, of which a warp holds a tile.
template <class Arguments, row_alignment Known>
struct norm_rows {
    const Arguments& args;
    int row;
    int column;
    int columns = args.columns - column;  // to the end of the row; not positive in a warp that has no part of it

    template <class Tile>
    IMBREX_KERNEL void load_x(const warp& self, Tile& x, source here = source::current()) const {
        load_rows_from<Known>(self, x, pointers(args.x), columns, here);
    }
    // If there is a residual: residual = x = x + residual, rounded once to its type.
    template <class Tile>
    IMBREX_KERNEL void add_residual(const warp& self, Tile& x, source here = source::current()) const {
        if (!args.residual.given()) return;
        Tile residual;
        load_rows_from<Known>(self, residual, pointers(args.residual), columns, here);
        transform(self, x, functional::add{}, x, residual, here);
        store_rows_to<Known>(self, pointers(args.residual), x, columns, here);
    }
    // What `add_residual` left in x, read again. A lane reads only elements that it read or wrote itself: no barrier is
    // needed.
    template <class Tile>
    IMBREX_KERNEL void reload(const warp& self, Tile& x, source here = source::current()) const {
        if (args.residual.given()) {
            load_rows_from<Known>(self, x, pointers(args.residual), columns, here);
        } else {
            load_x(self, x, here);
        }
    }
    template <class Tile>
    IMBREX_KERNEL void store_out(const warp& self, const Tile& x, source here = source::current()) const {
        store_rows_to<Known>(self, pointers(args.out), x, columns, here);
    }
    // One value per column, such as the weight.
    template <class Weight, int Columns>
    IMBREX_KERNEL void load_columns(const warp& self, vector_row_column_values<Weight, Columns>& to, const Weight* from,
                                    source here = source::current()) const {
        load<Known>(self, to, from + column, columns, here);
    }

  private:
    template <class Element>
    IMBREX_KERNEL row_pointers<Element> pointers(const row_accessor<Element>& of) const {
        return {of, row, args.rows, column};
    }
};

// Partial results of the warps that share a row.
template <class T, int Warps>
struct cross_warp_exchange {
    struct all_warps {};
    shared_vector<T, Warps> of_warps;

    // Publishes the result of this warp and waits for those of the others.
    IMBREX_KERNEL void publish(const warp& self, const T& mine, source here = source::current()) {
        put(self, of_warps, self.index(), mine, here);
        named_barriers<all_warps>::template of<all_warps>().sync(self, Warps, here);
    }
    IMBREX_KERNEL T of(const warp& self, int number, source here = source::current()) const {
        return get(self, of_warps, number, here);
    }
    // All of them, one per lane.
    IMBREX_KERNEL auto gather(const warp& self, source here = source::current()) const {
        return warp_gather<Warps>(
            self, [&](int number) -> T { return *of_warps.at(number, here); }, here);
    }
};

// `min_blocks_per_sm` for this many warps per SM: while some blocks wait at their barrier, others keep memory requests
// in flight.
constexpr int norm_blocks_per_sm(int warps_per_block, int warps_per_sm) {
    return warps_per_block > warps_per_sm ? 1 : warps_per_sm / warps_per_block;
}

// Aligned rows of up to Columns * WarpsPerRow columns. With one warp per row, a warp holds 512 / Columns rows.
template <class Kernel, class T, int Columns, int WarpsPerRow>
struct norm_kernel {
    static_assert(Columns == 512 || (Columns < 512 && WarpsPerRow == 1), "imbrex: a warp holds 512 elements");
    static constexpr int rows_per_warp = 512 / Columns;
    static constexpr int warps = WarpsPerRow == 1 ? 4 : WarpsPerRow;
    static constexpr bool uses_pdl = true;
    using tile = vector_row_tile<T, rows_per_warp, Columns>;

    template <class Arguments>
    static grid_dim grid_of(const Arguments& args) {
        constexpr int in_block = rows_per_warp * (warps / WarpsPerRow);
        return {(args.rows - 1) / in_block + 1};
    }

    template <class Block, class Arguments, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const Arguments& args, SharedMemory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const int first = block.index().x * (warps / WarpsPerRow);
        block.each_warp([&](const warp& self) {
            const int row = (first + (WarpsPerRow == 1 ? self.index() : 0)) * rows_per_warp;
            if (row >= args.rows) return;
            const int column = WarpsPerRow == 1 ? 0 : self.index() * Columns;
            Kernel::normalise(self, norm_rows<Arguments, row_alignment::aligned>{args, row, column}, shared);
        });
    }
};

template <class Kernel, class T, row_alignment Known>
struct two_pass_norm_kernel {
    static constexpr int warps = 8;
    static constexpr bool uses_pdl = true;
    static constexpr int columns_per_warp = 256;
    using tile = vector_row_tile<T, 1, columns_per_warp>;

    template <class Arguments>
    static grid_dim grid_of(const Arguments& args) {
        return {args.rows};
    }

    template <class Block, class Arguments, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const Arguments& args, SharedMemory& shared) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        const int row = block.index().x;
        block.each_warp([&](const warp& self) { Kernel::normalise(self, args, row, shared); });
    }

    // Calls function(norm_rows) for each tile of this warp.
    template <class Arguments, class Function>
    IMBREX_KERNEL static void each_tile(const warp& self, const Arguments& args, int row, Function&& function) {
        constexpr int step = warps * columns_per_warp;
        for (int column = self.index() * columns_per_warp; column < args.columns; column += step) {
            function(norm_rows<Arguments, Known>{args, row, column});
        }
    }
};

}  // namespace imbrex
