// The frame of an elementwise kernel: the rows of its output are divided into tiles, one per warp, and warps do not
// synchronise. A kernel derives from row_tiles_kernel and adds its arguments and the work on one tile:
//
//     struct my_kernel : row_tiles_kernel<my_kernel> {
//         struct arguments { ...; row_tiles<Rows, Columns> all; };
//         IMBREX_KERNEL static void apply(const warp& self, const arguments& args, int row, int column);
//     };
//     launch_row_tiles<my_kernel>(where, args, stream);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/world.hpp>
#include <imbrex/kernels/row_view.hpp>
#include <imbrex/ops/grid/pdl.hpp>

#include <cstdint>

namespace imbrex {

// Row-major grid of Rows x Columns tiles, one tile per warp.
template <int Rows, int Columns>
struct row_tiles {
    int rows, columns;

    IMBREX_FN int column_tiles() const { return (columns - 1) / Columns + 1; }
    IMBREX_FN std::int64_t count() const {
        return static_cast<std::int64_t>(column_tiles()) * ((rows - 1) / Rows + 1);  // needs rows > 0 and columns > 0
    }
    IMBREX_FN int row(int number) const { return number / column_tiles() * Rows; }
    IMBREX_FN int column(int number) const { return number % column_tiles() * Columns; }
};

// Kernel::apply(warp, args, row, column) processes the tile whose first element is (row, column). Its last rows and
// columns may lie outside, and all of its rows if the number of tiles is not a multiple of `warps`.
template <class Kernel>
struct row_tiles_kernel {
    static constexpr int warps = 4;
    static constexpr bool uses_pdl = true;

    template <class Arguments>
    static grid_dim grid_of(const Arguments& args) {
        return {static_cast<int>((args.all.count() - 1) / warps + 1)};
    }

    template <class Block, class Arguments, class SharedMemory>
    IMBREX_KERNEL static void run(Block& block, const Arguments& args, SharedMemory&) {
        pdl_wait(block);
        pdl_launch_dependents(block);
        block.each_warp([&](const warp& self) {
            const int number = block.index().x * warps + self.index();
            Kernel::apply(self, args, args.all.row(number), args.all.column(number));
        });
    }
};

inline namespace IMBREX_WORLDS {

template <class Kernel>
void launch_row_tiles(world where, const typename Kernel::arguments& args, void* stream) {
    require(args.all.count() <= detail::max_rows, "out.extents: ", args.all.rows, " rows of ", args.all.columns,
            " columns; too many tiles for one launch");
    imbrex::launch<Kernel>(where, Kernel::grid_of(args), args, stream);
}

}  // namespace IMBREX_WORLDS

}  // namespace imbrex
