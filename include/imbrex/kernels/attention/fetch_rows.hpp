// Loads rows of Q, K, V or dO into shared memory by cp.async, each warp of a block its share: with any strides, and in
// branch-free 16-byte copies where rows are aligned. Rows and columns that do not exist become zero.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/ops/memory/async_copy.hpp>

namespace imbrex {

template <int Warps, class Scope, class Tile, class Rows>
IMBREX_KERNEL void fetch_rows(const Scope& self, Tile& to, const Rows& from, source here = source::current()) {
    using layout = typename Tile::layout;
    constexpr int share = Tile::rows / Warps;
    const int row = self.index() * share;
    const global_tile<const typename Tile::element> mine = from.from(row, 0);
    if (mine.is_16_byte_aligned()) {
        for (int column = 0; column < Tile::columns; column += layout::panel_columns) {
            copy_aligned_async(self, to.template subtile<share, layout::panel_columns>(row, column),
                               mine.from(0, column), here);
        }
    } else {
        copy_async(self, to.template subtile<share>(row), mine, here);
    }
}

}  // namespace imbrex
