// Attention's two products, and the weights between them, in float arithmetic and without matrix instructions: register tiles are
// multiplied with rows that lie in global memory, of floats or of 16 bits.
//
//     warp_tile<float, 16, 64> scores;                                    // of 16 rows and 64 others
//     simt_qk(self, scores, rows, place_of_query, keys, depth);
//     simt_online_softmax(self, scores, rows, factor, largest, sums, corrections);
//     combine_with_rows(self, out, corrections, functional::multiply{});
//     simt_pv(self, out, scores, rows, values, columns);
//
// Of the tiles' rows only the first are of use, and of columns those that exist; what does not exist is never read.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/paged_row_blocks.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/simt_attention.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// products[row][other] = the product of a row, which begins where row_place(row) says, and one of the others, of so many elements
// each, at most 256. It is zero for others that do not exist. `rows` is at least 1.
template <int Rows, int Columns, class RowPlace, class Place>
IMBREX_KERNEL void simt_qk(const warp& scope, hw::fragment<float, Rows, Columns, 1>& products, int rows,
                           const RowPlace& row_place, const paged_row_blocks<Place>& others, int head_dim,
                           source here = source::current()) {
    static_assert(Columns % paged_row_blocks<Place>::rows_in_block == 0,
                  "imbrex: a tile of products has a column for each row of whole blocks");
    hw::simt_qk(scope, products, rows, row_place, others, head_dim, here);
}

// sums[row] += weights[row][i] * values[i], over all i that exist. Values have so many columns, a multiple of 8; behind them, up to
// the next multiple of 16, sums may become anything.
template <int Rows, int Columns, int Keys, class Place>
IMBREX_KERNEL void simt_pv(const warp& scope, hw::fragment<float, Rows, Columns, 1>& sums,
                           const hw::fragment<float, Rows, Keys, 1>& weights, int rows,
                           const paged_row_blocks<Place>& values, int columns, source here = source::current()) {
    static_assert(Columns % 16 == 0, "imbrex: sums of weighted rows have a multiple of 16 columns");
    static_assert(Keys % paged_row_blocks<Place>::rows_in_block == 0,
                  "imbrex: a tile of weights has a column for each row of whole blocks");
    hw::simt_pv(scope, sums, weights, rows, values, columns, here);
}

// A step of a softmax whose scores come tile by tile: scores become 2^(factor * (score - the largest of its row so far)), `largest` and
// `sums` follow, and what was summed before is to be multiplied with `corrections`. The factor is positive. A row of nothing but
// -infinity has weights of zero.
template <int Rows, int Columns>
IMBREX_KERNEL void simt_online_softmax(const warp& scope, hw::fragment<float, Rows, Columns, 1>& scores, int rows,
                                       float factor, hw::row_fragment<float, Rows, 1>& row_max,
                                       hw::row_fragment<float, Rows, 1>& sums,
                                       hw::row_fragment<float, Rows, 1>& corrections, source here = source::current()) {
    hw::simt_online_softmax(scope, scores, rows, factor, row_max, sums, corrections, here);
}

// The first columns of the first rows, rounded to the type of the places, which may begin anywhere.
template <int Rows, int Columns, class Place>
IMBREX_KERNEL void simt_store_rows(const warp& scope, const Place& place,
                                   const hw::fragment<float, Rows, Columns, 1>& from, int rows, int columns,
                                   source here = source::current()) {
    hw::simt_store_rows(scope, place, from, rows, columns, here);
}

}  // namespace imbrex
