// Operations on several columns of vectorised rows (tile/vector_row_tile.hpp): functions of two neighbours, the
// Walsh-Hadamard transform, and reductions of whole tiles.
//
//     vector_row_tile<float, 4, 64> x, y;
//     update_neighbours(self, [](int, int, float_pair& a, float_pair& b) { std::swap(a.low, b.high); }, x, y);
//     hadamard(self, x, 64);
//     const float amax = reduce(self, 0.0f, functional::absolute_maximum{}, functional::maximum{}, x, y);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

#include <utility>

namespace imbrex {

// function(row, column, two neighbours of x, of y) for every even column: float_pair references, in float, rounded once.
// The first form need not be given initialised tiles and writes both.
template <class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void fill_neighbours(const warp& scope, Function&& function, hw::vector_row_fragment<T, Rows, Columns>& x,
                                   hw::vector_row_fragment<T, Rows, Columns>& y, source here = source::current()) {
    hw::visit_vector_row_tiles(scope, hw::use::write, here, std::forward<Function>(function), x, y);
}
template <class T, int Rows, int Columns, class Function>
IMBREX_KERNEL void update_neighbours(const warp& scope, Function&& function,
                                     hw::vector_row_fragment<T, Rows, Columns>& x,
                                     hw::vector_row_fragment<T, Rows, Columns>& y, source here = source::current()) {
    hw::visit_vector_row_tiles(scope, hw::use::update, here, std::forward<Function>(function), x, y);
}
// The same with two more tiles, which are only read.
template <class T, class U, int Rows, int Columns, class Function>
IMBREX_KERNEL void update_neighbours(const warp& scope, Function&& function,
                                     hw::vector_row_fragment<T, Rows, Columns>& x,
                                     hw::vector_row_fragment<T, Rows, Columns>& y,
                                     const hw::vector_row_fragment<U, Rows, Columns>& first,
                                     const hw::vector_row_fragment<U, Rows, Columns>& second,
                                     source here = source::current()) {
    hw::visit_vector_row_tiles(scope, hw::use::update, here, std::forward<Function>(function), x, y, first, second);
}

// The Walsh-Hadamard transform (the matrix of Sylvester, without its factor 1 / sqrt(run)) of every `run` columns: a
// power of two from 8 to the columns of the tile.
template <int Rows, int Columns>
IMBREX_KERNEL void hadamard(const warp& scope, hw::vector_row_fragment<float, Rows, Columns>& tile, int run,
                            source here = source::current()) {
    static_assert(Columns <= 256, "imbrex: a Hadamard transform has at most 256 columns");
    hw::hadamard_vector_rows(scope, tile, run, here);
}
// The last step of a transform of twice the columns, whose halves are two tiles: (x, y) = (x + y, x - y).
template <int Rows, int Columns>
IMBREX_KERNEL void hadamard_halves(const warp& scope, hw::vector_row_fragment<float, Rows, Columns>& x,
                                   hw::vector_row_fragment<float, Rows, Columns>& y, source here = source::current()) {
    update_neighbours(
        scope,
        [](int, int, float_pair& a, float_pair& b) {
            const float_pair before = a;
            a = {before.low + b.low, before.high + b.high};
            b = {before.low - b.low, before.high - b.high};
        },
        x, y, here);
}

// op over function(identity, element) of all elements of a tile, or of two; the same value in all lanes. `function` may be
// applied repeatedly: function(function(identity, first), second).
template <class T, int Rows, int Columns, class Function, class Op>
IMBREX_KERNEL float reduce(const warp& scope, float identity, Function function, Op op,
                           const hw::vector_row_fragment<T, Rows, Columns>& tile, source here = source::current()) {
    return hw::reduce_vector_rows(scope, identity, function, op, here, tile);
}
template <class T, int Rows, int Columns, class Function, class Op>
IMBREX_KERNEL float reduce(const warp& scope, float identity, Function function, Op op,
                           const hw::vector_row_fragment<T, Rows, Columns>& x,
                           const hw::vector_row_fragment<T, Rows, Columns>& y, source here = source::current()) {
    return hw::reduce_vector_rows(scope, identity, function, op, here, x, y);
}

}  // namespace imbrex
