// Applies RoPE (ops/register/rope.hpp) to vectorised row tiles (tile/vector_row_tile.hpp). cos and sin belong to a
// column: they are computed once and applied to all rows.
//
//     vector_row_cos_sin<64> by;
//     compute_cos_sin(self, by, [&](int column) { return rope.of_column(column, position); });
//     apply_rope_half_split(self, x, y, by);            // a pair is at the same place in two tiles
//
//     compute_cos_sin_interleaved(self, by, [&](int column) { return rope.of_column(column, position); });
//     apply_rope_interleaved(self, x, by);              // a pair is adjacent in one tile
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/vector_rows.hpp>
#include <imbrex/ops/register/rope.hpp>
#include <imbrex/tile/vector_row_tile.hpp>

namespace imbrex {

// One of each per column.
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

// function(column) returns cos and sin. It is called for all columns of a tile, also for those past the end of the
// rows.
template <int Columns, class Function>
IMBREX_KERNEL void compute_cos_sin(const warp& scope, vector_row_cos_sin<Columns>& to, Function&& function,
                                   source here = source::current()) {
    detail::compute_vector_row_cos_sin<1>(scope, to, function, here);
}
// Calls function for even columns only.
template <int Columns, class Function>
IMBREX_KERNEL void compute_cos_sin_interleaved(const warp& scope, vector_row_cos_sin<Columns>& to, Function&& function,
                                               source here = source::current()) {
    detail::compute_vector_row_cos_sin<2>(scope, to, function, here);
}

// Rotates each element of x with that of y, by cos and sin of their column; in float, rounded once.
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

// Rotates each element of an even column with its right neighbour, by cos and sin of the even column.
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
