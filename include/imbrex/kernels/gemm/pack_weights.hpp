// Prepacks quantised weights (int8, e4m3, int4, MXFP4) on the host, once, into the interleaved layout that the kernels
// read (quantised_weights.hpp). Input weights are row-major [rows, k]; 4-bit weights are two per byte, the first in the
// low bits. Scales are row-major too, one per group of K. Rows are padded to 64 and K to block_k with zeros.
//
//     using weights = int4_weights<bf16, 128>;
//     const auto packed = pack_weights<weights>(values, scales, rows, k);    // on the host; copy it to the device
//     const auto argument = weights::describe(on_the_device, rows, k);
#pragma once

#include <imbrex/core/ceil_div.hpp>
#include <imbrex/core/element_types.hpp>
#include <imbrex/core/error.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/kernels/gemm/block_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace imbrex {

// The number of packed tiles, for a loader that allocates the memory itself.
template <class Weights>
std::size_t packed_tile_count(int rows, int k) {
    return static_cast<std::size_t>(ceil_div(rows, packed_rows)) *
           static_cast<std::size_t>(ceil_div(k, Weights::block_k));
}

namespace detail {

// The bits of one weight.
inline std::uint32_t weight_bits(const std::int8_t* row, int column) {
    return static_cast<std::uint8_t>(row[column]);
}
inline std::uint32_t weight_bits(const e4m3* row, int column) {
    require(!row[column].is_nan(), "values: NaN in column ", column, "; weights are finite");
    return row[column].bits;
}
template <int Bits, int ZeroPoint>
std::uint32_t weight_bits(const packed_integer<Bits, ZeroPoint>* row, int column) {
    return row[column].bits & ((1U << Bits) - 1);
}
template <class Book>
std::uint32_t weight_bits(const packed_level<Book>* row, int column) {
    return row[column].bits & 0xfU;
}
template <class Pair>
std::uint32_t weight_bits(const Pair* row, int column) {
    return static_cast<std::uint32_t>(row[column / 2].bits) >> (column % 2 * 4) & 0xfU;
}

// Inserts a weight into a tile of words that starts as zeros.
template <class Float, class Tile>
void put_weight(Tile& tile, int row, int column, std::uint32_t bits) {
    using format = typename Tile::format;
    const packed_coord place = packed_coord_of<format>(row, column % Tile::unit::columns);
    const std::uint32_t field = packed_field_of<format, Float>(bits) << (16 * place.second);
    std::uint32_t* const unit = tile.unit_at(column);
    unit[place.word] ^= pack_fields<format, Float>(field, place.pair);
    if constexpr (Tile::unit::high_words_per_thread > 0) {
        pack_high_bits<format>(unit + packed_high_word<format>(place), packed_pair_of_thread<format>(place),
                               place.second, bits);
    }
}

// Inserts the scale of a row for one group.
template <class Weights, class WeightTile, class Scale>
void put_scale(WeightTile& tile, int row, int group, Scale scale) {
    tile.scales[group].storage[packed_row_offset(row)] = scale;
}
template <class Weights, class WeightTile>
void put_scale(WeightTile& tile, int row, int group, ue8m0 scale) {
    require(scale.bits <= packed_scale_max, "scales: 2^", static_cast<int>(scale.bits) - float_bias,
            scale.is_nan() ? " (NaN)" : "", " in row ", row, " of a tile; scales of 4-bit floats are at most 2");
    const int column = group * packed_scale_columns;
    const packed_coord place = packed_scale_coord_of(row, column % packed_columns);
    using element = typename Weights::element;
    tile.scales.words_at(column)[place.word] |= pack_scale<element>(packed_scale_of<element>(scale), place.pair);
}

// Packs one tile whose first element is (first_row, first_column).
template <class Weights>
void pack_tile(typename Weights::weight_tile& tile, const typename Weights::format* values,
               const typename Weights::scale* scales, int rows, int k, int first_row, int first_column) {
    using format = typename Weights::format;
    tile = {};
    for (int row = 0; row < packed_rows; ++row) {
        const bool exists = first_row + row < rows;
        const format* from =
            values + (exists ? first_row + row : 0) * (static_cast<std::int64_t>(k) / values_in<format>);
        for (int column = 0; column < Weights::block_k; ++column) {
            const bool inside = exists && first_column + column < k;
            put_weight<typename Weights::element>(tile.values, row, column,
                                                  inside ? weight_bits(from, first_column + column) : 0);
        }
        if constexpr (Weights::group > 0) {
            for (int group = 0; exists && group < Weights::block_k / Weights::group; ++group) {
                const int column = first_column + group * Weights::group;
                if (column >= k) break;
                const std::int64_t place = static_cast<std::int64_t>(first_row + row) * (k / Weights::group);
                put_scale<Weights>(tile, row, group, scales[place + column / Weights::group]);
            }
        }
    }
}

// Packs one tile of block_weights.
template <class Weights>
void pack_block_tile(typename Weights::weight_tile& tile, const typename Weights::format* values,
                     const typename Weights::scale* scales, const typename Weights::super_scale* supers, int rows,
                     int k, int first_row, int first_column) {
    tile = {};
    for (int row = 0; row < packed_rows && first_row + row < rows; ++row) {
        const std::int64_t first = static_cast<std::int64_t>(first_row + row) * k + first_column;
        const int place = packed_row_offset(row);
        for (int column = 0; column < Weights::block_k && first_column + column < k; ++column) {
            put_weight<typename Weights::element>(tile.values, row, column, weight_bits(values + first, column));
            if (column % packed_columns == 0)
                tile.scales[column / packed_columns].storage[place] = scales[(first + column) / packed_columns];
            if (column % Weights::super_block == 0)
                tile.supers[column / Weights::super_block].storage[place] =
                    supers[(first + column) / Weights::super_block];
        }
    }
}

}  // namespace detail

// Packs into memory for packed_tile_count tiles. int8_weights and e4m3_weights have no groups and are packed without
// scales. The tiles of 64 rows are consecutive, so a large matrix can be packed in parts of a multiple of 64 rows.
template <class Weights>
void pack_weights(typename Weights::weight_tile* to, const typename Weights::format* values,
                  const typename Weights::scale* scales, int rows, int k) {
    constexpr int group = Weights::group > 0 ? Weights::group : values_in<typename Weights::format>;
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1 && k % group == 0, "k: ", k, "; k must be a positive multiple of the group size, ", group);
    require(to != nullptr, "to: null; there must be memory for ", packed_tile_count<Weights>(rows, k), " tiles");
    require(values != nullptr, "values: null; weights of ", rows, " x ", k, " are needed");
    require(scales != nullptr || Weights::group == 0, "scales: null; there must be one for each row and ", group,
            " of K");
    for (int row = 0; row < rows; row += packed_rows) {
        for (int column = 0; column < k; column += Weights::block_k) {
            detail::pack_tile<Weights>(*to++, values, scales, rows, k, row, column);
        }
    }
}

// The same for block_weights (block_weights.hpp): scales for each row and 64 of K, super-scales for each row and
// super-block.
template <class Weights>
void pack_weights(typename Weights::weight_tile* to, const typename Weights::format* values,
                  const typename Weights::scale* scales, const typename Weights::super_scale* supers, int rows, int k) {
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1 && k % Weights::super_block == 0, "k: ", k, "; k must be a positive multiple of the super-block, ",
            Weights::super_block);
    require(to != nullptr, "to: null; there must be memory for ", packed_tile_count<Weights>(rows, k), " tiles");
    require(values != nullptr && scales != nullptr && supers != nullptr,
            "values, scales, supers: one is null; weights of ", rows, " x ", k, " have all three");
    for (int row = 0; row < rows; row += packed_rows) {
        for (int column = 0; column < k; column += Weights::block_k) {
            detail::pack_block_tile<Weights>(*to++, values, scales, supers, rows, k, row, column);
        }
    }
}

template <class Weights>
std::vector<typename Weights::weight_tile> pack_weights(const typename Weights::format* values,
                                                        const typename Weights::scale* scales, int rows, int k) {
    require(rows >= 1, "rows: ", rows, "; there must be a row of weights");
    require(k >= 1, "k: ", k, "; k must be positive");
    std::vector<typename Weights::weight_tile> packed(packed_tile_count<Weights>(rows, k));
    pack_weights<Weights>(packed.data(), values, scales, rows, k);
    return packed;
}

}  // namespace imbrex
