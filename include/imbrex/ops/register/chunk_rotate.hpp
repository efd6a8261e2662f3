// Pairs of numbers turned in their plane (ops/register/rotate.hpp), of rows that a warp holds in chunks (tile/chunk_tile.hpp). A
// rotation belongs to a column: it is found once, and turns all rows.
//
//     chunk_rotations<64> by;
//     find_rotations(self, by, [&](int column) { return rotary.of_column(column, position); });
//     rotate(self, x, y, by);                      // the two of a pair in the same place of two tiles
//
//     find_rotations_of_neighbours(self, by, [&](int column) { return rotary.of_column(column, position); });
//     rotate_neighbours(self, x, by);              // or next to each other in one
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/chunk_columns.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/ops/register/rotate.hpp>
#include <imbrex/tile/chunk_tile.hpp>

namespace imbrex {

// One for each column.
template <int Columns>
struct chunk_rotations {
    hw::chunk_column_fragment<float, Columns> cosines, sines;
};

namespace detail {

template <int Run, int Columns, class Function>
IMBREX_KERNEL void find_chunk_rotations(const warp& scope, chunk_rotations<Columns>& to, Function& function,
                                        source here) {
    hw::write_chunk_columns<Run>(
        scope, here,
        [&](int column, float& cosine, float& sine) {
            const rotation found = function(column);
            cosine = found.cosine;
            sine = found.sine;
        },
        to.cosines, to.sines);
}

}  // namespace detail

// function(column): a rotation. It is asked for all columns of a tile, also for those that a row does not have.
template <int Columns, class Function>
IMBREX_KERNEL void find_rotations(const warp& scope, chunk_rotations<Columns>& to, Function&& function,
                                  source here = source::current()) {
    detail::find_chunk_rotations<1>(scope, to, function, here);
}
// The same for neighbours: it is asked for even columns.
template <int Columns, class Function>
IMBREX_KERNEL void find_rotations_of_neighbours(const warp& scope, chunk_rotations<Columns>& to, Function&& function,
                                                source here = source::current()) {
    detail::find_chunk_rotations<2>(scope, to, function, here);
}

// Each element of one tile with that of the other, by the rotation of their column; in float and rounded once.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void rotate(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& x,
                          hw::chunk_fragment<T, Rows, Columns>& y, const chunk_rotations<Columns>& by,
                          source here = source::current()) {
    hw::visit_chunk_pairs(
        scope, here,
        [](float& one, float& other, float cosine, float sine) {
            rotation{cosine, sine}.turn(one, other);
        },
        x, y, by.cosines, by.sines);
}

// Each element of an even column with the next one of its row, by the rotation of the even column.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void rotate_neighbours(const warp& scope, hw::chunk_fragment<T, Rows, Columns>& tile,
                                     const chunk_rotations<Columns>& by, source here = source::current()) {
    hw::visit_chunk_neighbours(
        scope, here,
        [](float& one, float& next, float cosine, float sine) {
            rotation{cosine, sine}.turn(one, next);
        },
        tile, by.cosines, by.sines);
}

}  // namespace imbrex
