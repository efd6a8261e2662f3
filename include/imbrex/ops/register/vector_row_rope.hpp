// Pairs of numbers turned in their plane (ops/register/rotate.hpp), of rows that a warp holds in chunks (tile/vector_row_tile.hpp). A
// rotation belongs to a column: it is found once, and turns all rows.
//
//     vector_row_cos_sin<64> by;
//     compute_cos_sin(self, by, [&](int column) { return rotary.of_column(column, position); });
//     apply_rope_half_split(self, x, y, by);                      // the two of a pair in the same place of two tiles
//
//     compute_cos_sin_interleaved(self, by, [&](int column) { return rotary.of_column(column, position); });
//     apply_rope_interleaved(self, x, by);              // or next to each other in one
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_row_columns.hpp>
#include <imbrex/ops/register/rope.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// One for each column.
template <int Columns>
struct vector_row_cos_sin {
    hw::vector_row_column_fragment<float, Columns> cosines, sines;
};

namespace detail {

template <int Run, int Columns, class Function>
IMBREX_KERNEL void compute_vector_row_cos_sin(const warp& scope, vector_row_cos_sin<Columns>& to, Function& function,
                                              source here) {
    hw::write_vector_row_columns<Run>(
        scope, here,
        [&](int column, float& cosine, float& sine) {
            const cos_sin found = function(column);
            cosine = found.cosine;
            sine = found.sine;
        },
        to.cosines, to.sines);
}

}  // namespace detail

// function(column): a rotation. It is asked for all columns of a tile, also for those that a row does not have.
template <int Columns, class Function>
IMBREX_KERNEL void compute_cos_sin(const warp& scope, vector_row_cos_sin<Columns>& to, Function&& function,
                                   source here = source::current()) {
    detail::compute_vector_row_cos_sin<1>(scope, to, function, here);
}
// The same for neighbours: it is asked for even columns.
template <int Columns, class Function>
IMBREX_KERNEL void compute_cos_sin_interleaved(const warp& scope, vector_row_cos_sin<Columns>& to, Function&& function,
                                               source here = source::current()) {
    detail::compute_vector_row_cos_sin<2>(scope, to, function, here);
}

// Each element of one tile with that of the other, by the rotation of their column; in float and rounded once.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void apply_rope_half_split(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& x,
                                         hw::vector_row_fragment<T, Rows, Columns>& y,
                                         const vector_row_cos_sin<Columns>& by, source here = source::current()) {
    hw::visit_vector_row_pairs(
        scope, here,
        [](float& one, float& other, float cosine, float sine) {
            cos_sin{cosine, sine}.rotate(one, other);
        },
        x, y, by.cosines, by.sines);
}

// Each element of an even column with the next one of its row, by the rotation of the even column.
template <class T, int Rows, int Columns>
IMBREX_KERNEL void apply_rope_interleaved(const warp& scope, hw::vector_row_fragment<T, Rows, Columns>& tile,
                                          const vector_row_cos_sin<Columns>& by, source here = source::current()) {
    hw::visit_vector_row_neighbours(
        scope, here,
        [](float& one, float& next, float cosine, float sine) {
            cos_sin{cosine, sine}.rotate(one, next);
        },
        tile, by.cosines, by.sines);
}

}  // namespace imbrex
