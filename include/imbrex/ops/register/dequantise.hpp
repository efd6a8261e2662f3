// Dequantises packed weights into registers (dequantize in American spelling): int8, int4, e4m3 or MXFP4 (4-bit floats
// with scales) to the bf16 or fp16 that the tensor cores multiply. int8 and e4m3 are exact; int4 is exact divided by
// packed_int4_divisor. Their scales are left to the caller. A 4-bit float is multiplied by its scale, a power of two,
// which is exact unless the result is subnormal in fp16 (or bf16).
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/registers.hpp>
#include <imbrex/tile/packed_tile.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

// Columns of the packed tile from First on, as many as the register tile has.
template <int First = 0, class Float, int Rows, int Columns, class Format, int PackedColumns>
IMBREX_KERNEL void dequantise(const warpgroup& scope, warpgroup_tile<Float, Rows, Columns>& to,
                              const packed_tile<Format, Rows, PackedColumns>& from, source here = source::current()) {
    static_assert(!std::is_same_v<Format, e2m1x2>, "imbrex: 4-bit floats are dequantised with their scales");
    static_assert(Columns % packed_columns == 0 && First % packed_columns == 0 && First + Columns <= PackedColumns,
                  "imbrex: packed weights are dequantised by multiples of 64 columns that the packed tile has");
    hw::dequantise(scope, to, from, First, here);
}

template <int First = 0, class Float, int Rows, int Columns, int PackedColumns>
IMBREX_KERNEL void dequantise(const warpgroup& scope, warpgroup_tile<Float, Rows, Columns>& to,
                              const packed_tile<e2m1x2, Rows, PackedColumns>& from,
                              const packed_scales<Rows, PackedColumns>& scales, source here = source::current()) {
    static_assert(Columns % packed_columns == 0 && First % packed_columns == 0 && First + Columns <= PackedColumns,
                  "imbrex: packed weights are dequantised by multiples of 64 columns that the packed tile has");
    hw::dequantise_scaled(scope, to, from, scales, First, here);
}

// Loads the scales of integers, for the products of their group.
template <class Scope, class Scale, int Rows, int Warps>
IMBREX_KERNEL void load(const Scope& scope, hw::row_fragment<Scale, Rows, Warps>& to,
                        const packed_row_scales<Scale>& from, source here = source::current()) {
    hw::load_row_scales(scope, to, from, here);
}

// Multiplies the columns of a group by the scale of their row times `factor`, and subtracts the minimum of their row, if
// given. The factor and the minimum of a row are rounded to Float, and so is the result.
template <int First, int Count, class Float, int Rows, int Columns, class Scale>
IMBREX_KERNEL void scale_group(const warpgroup& scope, warpgroup_tile<Float, Rows, Columns>& tile,
                               const row_values<Scale, Rows, warpgroup>& scales, float factor,
                               source here = source::current()) {
    static_assert(First % 8 == 0 && Count % 8 == 0 && First + Count <= Columns,
                  "imbrex: a group is a multiple of 8 columns inside the tile");
    hw::scale_group<First, Count>(scope, tile, scales, factor, here);
}
template <int First, int Count, class Float, int Rows, int Columns, class Scale>
IMBREX_KERNEL void scale_group(const warpgroup& scope, warpgroup_tile<Float, Rows, Columns>& tile,
                               const row_values<Scale, Rows, warpgroup>& scales, float factor,
                               const row_values<Scale, Rows, warpgroup>& minimums, source here = source::current()) {
    static_assert(First % 8 == 0 && Count % 8 == 0 && First + Count <= Columns,
                  "imbrex: a group is a multiple of 8 columns inside the tile");
    hw::scale_group<First, Count>(scope, tile, scales, factor, minimums, here);
}

// A warp loads 64 packed rows, which frees their shared memory, and dequantises 16 of them at a time.
template <class Format, int Rows, int Columns>
IMBREX_KERNEL void load(const warp& scope, packed_values<Format, Columns>& to,
                        const packed_tile<Format, Rows, Columns>& from, source here = source::current()) {
    hw::load_packed(scope, to, from, here);
}
template <int Rows, int Columns>
IMBREX_KERNEL void load(const warp& scope, packed_scale_values<Columns>& to, const packed_scales<Rows, Columns>& from,
                        source here = source::current()) {
    hw::load_packed_scales(scope, to, from, here);
}

template <int FirstRow, class Float, class Format, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp& scope, warp_tile<Float, 16, Columns>& to,
                                   const packed_values<Format, Columns>& from, source here = source::current()) {
    static_assert(!std::is_same_v<Format, e2m1x2>, "imbrex: 4-bit floats are dequantised with their scales");
    static_assert(FirstRow % 16 == 0 && FirstRow < packed_rows, "imbrex: packed rows are taken sixteen at a time");
    hw::dequantise_rows<FirstRow>(scope, to, from, here);
}
template <int FirstRow, class Float, int Columns>
IMBREX_KERNEL void dequantise_rows(const warp& scope, warp_tile<Float, 16, Columns>& to,
                                   const packed_values<e2m1x2, Columns>& from,
                                   const packed_scale_values<Columns>& scales, source here = source::current()) {
    static_assert(FirstRow % 16 == 0 && FirstRow < packed_rows, "imbrex: packed rows are taken sixteen at a time");
    hw::dequantise_rows<FirstRow>(scope, to, from, scales, here);
}

}  // namespace imbrex
