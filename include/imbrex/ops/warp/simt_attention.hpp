// The steps of SIMT paged attention, in float arithmetic without tensor cores: Q K^T, online softmax and P V, between
// register tiles and rows of float, bf16, fp16 or e4m3 in global memory.
//
//     warp_tile<float, 16, 64> scores;                                    // 16 query rows, 64 keys
//     simt_qk(self, scores, rows, query_pointer, keys, head_dim);
//     simt_online_softmax(self, scores, rows, factor, row_max, row_sum, corrections);
//     combine_with_rows(self, out, corrections, functional::multiply{});
//     simt_pv(self, out, scores, rows, values, columns);
//
// Only the first `rows` rows of a tile are computed. Memory outside the existing rows and columns is never read.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/paged_row_blocks.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/products.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// products[row][key] = dot product of a query row, at row_place(row), with a key; head_dim elements, at most 256. Zero
// for keys that do not exist. `rows` is at least 1.
template <int Rows, int Columns, class RowPlace, class Place>
IMBREX_KERNEL void simt_qk(const warp& scope, hw::fragment<float, Rows, Columns, 1>& products, int rows,
                           const RowPlace& row_place, const paged_row_blocks<Place>& others, int head_dim,
                           source here = source::current()) {
    static_assert(Columns % paged_row_blocks<Place>::rows_in_block == 0,
                  "imbrex: Columns must be a multiple of the rows of a block");
    hw::simt_qk(scope, products, rows, row_place, others, head_dim, here);
}

// sums[row] += sum over existing keys i of weights[row][i] * values[i]. `columns` is a multiple of 8; sums past it, up
// to the next multiple of 16, are undefined.
template <int Rows, int Columns, int Keys, class Place>
IMBREX_KERNEL void simt_pv(const warp& scope, hw::fragment<float, Rows, Columns, 1>& sums,
                           const hw::fragment<float, Rows, Keys, 1>& weights, int rows,
                           const paged_row_blocks<Place>& values, int columns, source here = source::current()) {
    static_assert(Columns % 16 == 0, "imbrex: Columns must be a multiple of 16");
    static_assert(Keys % paged_row_blocks<Place>::rows_in_block == 0,
                  "imbrex: Keys must be a multiple of the rows of a block");
    hw::simt_pv(scope, sums, weights, rows, values, columns, here);
}

// One step of an online softmax: scores become 2^(factor * (score - row_max)), row_max and sums are updated, and
// earlier accumulators must be multiplied by `corrections`. The factor is positive. A row that is -infinity throughout
// gives zeros.
template <int Rows, int Columns>
IMBREX_KERNEL void simt_online_softmax(const warp& scope, hw::fragment<float, Rows, Columns, 1>& scores, int rows,
                                       float factor, hw::row_fragment<float, Rows, 1>& row_max,
                                       hw::row_fragment<float, Rows, 1>& sums,
                                       hw::row_fragment<float, Rows, 1>& corrections, source here = source::current()) {
    hw::simt_online_softmax(scope, scores, rows, factor, row_max, sums, corrections, here);
}

// Stores the first `columns` columns of the first `rows` rows, converted to the element type of place(row), at any
// alignment.
template <int Rows, int Columns, class Place>
IMBREX_KERNEL void simt_store_rows(const warp& scope, const Place& place,
                                   const hw::fragment<float, Rows, Columns, 1>& from, int rows, int columns,
                                   source here = source::current()) {
    hw::simt_store_rows(scope, place, from, rows, columns, here);
}

}  // namespace imbrex
