// Masks on register tiles: elements whose position fails a predicate are replaced. A mask is a function of the
// element's row and column in the whole matrix, so the caller passes the position of the tile's first element. Common
// predicates are below; any function object works. Where each row keeps a contiguous range of columns, mask_outside is
// cheaper.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

namespace element_mask {

// Causal: column <= row + offset. With fewer queries than keys, an offset of seqlen_k - seqlen_q aligns the last ones
// (bottom-right).
struct causal {
    int offset = 0;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return column <= row + offset; }
};

// At or below, or at or above, a diagonal.
struct lower_triangle {
    int diagonal = 0;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return column - row <= diagonal; }
};
struct upper_triangle {
    int diagonal = 0;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return column - row >= diagonal; }
};

// At most `left` columns before the diagonal and `right` after it.
struct window {
    int left;
    int right;
    int offset = 0;
    constexpr IMBREX_FN bool operator()(int row, int column) const {
        return column >= row + offset - left && column <= row + offset + right;
    }
};

// Inside a matrix of this size (out-of-bounds rows and columns are masked).
struct bound {
    int rows;
    int columns;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return row < rows && column < columns; }
};

// Both predicates hold.
template <class First, class Second>
struct both {
    First first;
    Second second;
    constexpr IMBREX_FN bool operator()(int row, int column) const { return first(row, column) && second(row, column); }
};

}  // namespace element_mask

// Elements for which keep(first_row + row, first_column + column) fails become `masked`.
template <class Scope, class T, int Rows, int Columns, int Warps, register_layout Layout, class Keep>
IMBREX_KERNEL void mask(const Scope& scope, hw::fragment<T, Rows, Columns, Warps, Layout>& tile, Keep keep,
                        int first_row, int first_column, T masked, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps, Layout>>();
    hw::visit(
        scope, hw::use::update, here,
        [&](int row, int column, T& element) {
            element = keep(first_row + row, first_column + column) ? element : masked;
        },
        tile);
}

// Elements outside the column range of their row become `masked`. range(row) returns {first, end}, half-open and
// relative to the tile's first row and column; it may exceed the tile.
template <class Scope, class T, int Rows, int Columns, int Warps, class Range>
IMBREX_KERNEL void mask_outside(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& tile, const Range& range,
                                T masked, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::keep_columns(scope, tile, range, masked, here);
}

}  // namespace imbrex
