// A packed tile: quantised weights in shared memory in the prepacked, interleaved layout of global memory
// (core/packed_weights.hpp), 64 rows and a multiple of 64 columns. Also the scales of MXFP4 and of integer groups.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/registers.hpp>

#include <cstdint>

namespace imbrex {

template <packable Format, int Rows, int Columns>
struct packed_tile {
    static_assert(Rows == packed_rows, "imbrex: weights are packed by 64 rows, what a warpgroup multiplies");
    static_assert(Columns > 0 && Columns % packed_columns == 0,
                  "imbrex: a packed tile's columns must be a multiple of 64");
    using format = Format;
    using unit = packed_unit<Format>;
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int length = Columns / unit::columns * unit::words;
    static constexpr int bytes = length * 4;

    alignas(128) std::uint32_t words[length];

    // The unit that starts at a column.
    IMBREX_KERNEL std::uint32_t* unit_at(int column) { return words + column / unit::columns * unit::words; }
    IMBREX_KERNEL const std::uint32_t* unit_at(int column) const {
        return words + column / unit::columns * unit::words;
    }
    // A range of columns as a packed tile; its units are contiguous.
    template <int Count>
    IMBREX_KERNEL const packed_tile<Format, Rows, Count>& columns_from(int column) const {
        return *reinterpret_cast<const packed_tile<Format, Rows, Count>*>(unit_at(column));
    }
};

template <int Rows, int Columns>
struct packed_scales {
    static_assert(Rows == packed_rows, "imbrex: scales are packed by 64 rows, what a warpgroup multiplies");
    static_assert(Columns > 0 && Columns % packed_columns == 0,
                  "imbrex: packed scales must be for a multiple of 64 columns");
    static constexpr int rows = Rows;
    static constexpr int columns = Columns;
    static constexpr int length = Columns / packed_columns * packed_scale_words;
    static constexpr int bytes = length * 4;

    alignas(128) std::uint32_t words[length];

    IMBREX_KERNEL std::uint32_t* words_at(int column) { return words + column / packed_columns * packed_scale_words; }
    IMBREX_KERNEL const std::uint32_t* words_at(int column) const {
        return words + column / packed_columns * packed_scale_words;
    }
    template <int Count>
    IMBREX_KERNEL const packed_scales<Rows, Count>& columns_from(int column) const {
        return *reinterpret_cast<const packed_scales<Rows, Count>*>(words_at(column));
    }
};

template <class Scale>
struct packed_row_scales {
    using element = Scale;
    static constexpr int rows = packed_rows;

    alignas(128) Scale storage[rows];
};

// Packed weights in the registers of a warp.
template <packable Format, int Columns>
using packed_values = hw::packed_fragment<Format, Columns>;
template <int Columns>
using packed_scale_values = hw::packed_scale_fragment<Columns>;

}  // namespace imbrex
