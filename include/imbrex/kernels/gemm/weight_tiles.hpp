// Levels of packed weights in a GEMV or small-M GEMM: a weight tile (64 rows x block_k) in global memory, a weight
// subtile (64 x 64) in shared memory, and the fragment of a subtile in the registers of a warp; and the cp.async
// sources of a warp's subtiles.
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/ops/memory/cp_async_iterator.hpp>
#include <imbrex/tile/packed_tile.hpp>
#include <imbrex/tile/shared_tile.hpp>

#include <cstdint>

namespace imbrex {

// Packed weights in global memory: tiles of 64 rows x block_k; the tiles of the same 64 rows are consecutive.
template <class WeightTile>
struct packed_weight_tiles {
    const WeightTile* tiles = nullptr;
    int blocks = 0;  // of 64 rows
    int steps = 0;

    // Beyond the last block the last tile is read again; its products are not stored.
    IMBREX_FN const WeightTile& at(int block, int step) const {
        const int existing = block < blocks ? block : blocks - 1;
        return tiles[static_cast<std::int64_t>(existing) * steps + step];
    }
};

namespace detail {

template <class WeightTile>
packed_weight_tiles<WeightTile> describe_weight_tiles(const WeightTile* tiles, int rows, int k, int block_k) {
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1, "k: ", k, "; k must be positive");
    require(tiles != nullptr, "tiles: null; packed weights of ", rows, " x ", k, " are needed");
    require(reinterpret_cast<std::uintptr_t>(tiles) % 16 == 0, "tiles: ", static_cast<const void*>(tiles),
            " is not a multiple of 16 bytes, which TMA needs");
    return {tiles, ceil_div(rows, packed_rows), ceil_div(k, block_k)};
}

// The index of a subtile in its step. Determines whether a quantisation group may begin or must end with it.
template <int Number, int Count>
struct subtile_index {
    static constexpr int columns = Number * packed_columns;  // from the first subtile
    static constexpr bool begins(int group) { return group <= packed_columns || Number == 0; }
    static constexpr bool ends(int group) { return group <= packed_columns || Number == Count - 1; }
};

// A weight subtile of 64 x 64, and its register fragment.
template <class Format, class Scales>
struct scaled_subtile {
    packed_tile<Format, packed_rows, packed_columns> values;
    Scales scales;
};
template <class Format>
struct unscaled_subtile {
    packed_tile<Format, packed_rows, packed_columns> values;
};
template <class Format, class Scales>
struct scaled_fragment {
    packed_values<Format, packed_columns> values;
    Scales scales;
};
template <class Format>
struct unscaled_fragment {
    packed_values<Format, packed_columns> values;
};

// The source of a warp's subtiles: the address of its first step; later steps are a number of tiles further.
template <class WeightTile, class WeightSubtile>
struct unscaled_source {
    cp_async_object_iterator<decltype(WeightSubtile::values)> values;

    IMBREX_KERNEL unscaled_source(const warp& self, const WeightTile& first, int column)
        : values(self, first.values.template columns_from<packed_columns>(column)) {}

    IMBREX_KERNEL void copy_values(const warp& self, WeightSubtile& to, int tiles, int columns) const {
        using unit = typename decltype(WeightSubtile::values)::unit;
        constexpr int bytes_of_unit = unit::words * 4;
        copy_async(self, to.values, values, std::int64_t{tiles} * static_cast<int>(sizeof(WeightTile)),
                   columns / unit::columns * bytes_of_unit);
    }
};
template <class WeightTile, class WeightSubtile>
struct scaled_source : unscaled_source<WeightTile, WeightSubtile> {
    using scales_type = decltype(WeightSubtile::scales);
    cp_async_object_iterator<scales_type> scales;

    IMBREX_KERNEL scaled_source(const warp& self, const WeightTile& first, int column, const scales_type& first_scales)
        : unscaled_source<WeightTile, WeightSubtile>(self, first, column),
          scales(this->values, behind(first.values.template columns_from<packed_columns>(column), first_scales)) {}

    IMBREX_KERNEL void copy_scales(const warp& self, WeightSubtile& to, int tiles, int number) const {
        copy_async(self, to.scales, scales, std::int64_t{tiles} * static_cast<int>(sizeof(WeightTile)),
                   number * static_cast<int>(sizeof(scales_type)));
    }

  protected:
    template <class Values, class Scales>
    IMBREX_KERNEL static int behind(const Values& values, const Scales& scales) {
        return static_cast<int>(reinterpret_cast<const unsigned char*>(&scales) -
                                reinterpret_cast<const unsigned char*>(&values));
    }
};

template <class Format, int BlockK>
struct unscaled_tile {
    packed_tile<Format, packed_rows, BlockK> values;
};
template <int BlockK>
struct mxfp4_tile {
    packed_tile<e2m1x2, packed_rows, BlockK> values;
    packed_scales<packed_rows, BlockK> scales;
};
template <class Format, int Group, class Scale, int BlockK>
struct grouped_tile {
    packed_tile<Format, packed_rows, BlockK> values;
    packed_row_scales<Scale> scales[ceil_div(BlockK, Group)];
};

}  // namespace detail

}  // namespace imbrex
