// Packed weights (core/packed_weights.hpp) in the host world: the same words and the same arithmetic, element by element.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scalar.hpp>

#include <cstdint>
#include <cstring>

namespace imbrex::hw {

// Two 16-bit floats at once. A float holds the exact result of either operation on them or rounds to where the second
// rounding goes the same way: it has more than twice their digits.
template <class Float>
struct float_pairs {
    static std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
        const float_pair left = unpack2<Float>(a), right = unpack2<Float>(b);
        return pack2<Float>(left.low - right.low, left.high - right.high);
    }
    static std::uint32_t merge(std::uint32_t a, std::uint32_t mask, std::uint32_t b) { return (a & mask) | b; }
    static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
        const float_pair left = unpack2<Float>(a), right = unpack2<Float>(b);
        return pack2<Float>(left.low * right.low, left.high * right.high);
    }
};

// As many rows and columns as the tile has, from some on. f(row, column, word, pair) says what the two numbers of a pair are.
template <class Format, class Float, int Rows, int Columns, int Warps, class F>
void each_pair(fragment<Float, Rows, Columns, Warps>& to, int first_row, int first_column, const std::uint32_t* units,
               F f) {
    using unit = packed_unit<Format>;
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; column += 2) {
            const int from_row = first_row + row, from_column = first_column + column;
            const packed_place place = packed_place_of<Format>(from_row, from_column % unit::columns);
            const std::uint32_t word = units[from_column / unit::columns * unit::words + place.word];
            const std::uint32_t floats = f(from_row, from_column, word, place.pair);
            to.at(row, column) = Float::from_bits(static_cast<std::uint16_t>(floats));
            to.at(row, column + 1) = Float::from_bits(static_cast<std::uint16_t>(floats >> 16));
        }
    }
}
template <class Format, class Float, int Rows, int Columns, int Warps, class Scale>
void dequantise_units(fragment<Float, Rows, Columns, Warps>& to, int first_row, int first_column,
                      const std::uint32_t* units, Scale scale) {
    each_pair<Format>(to, first_row, first_column, units, [&](int row, int column, std::uint32_t word, int pair) {
        return packed_floats<Format, Float, float_pairs<Float>>(word, pair, scale(row, column));
    });
}

template <class Float, int Columns, class Packed>
void dequantise(const warpgroup& scope, fragment<Float, packed_rows, Columns, 4>& to, const Packed& from, int first,
                source here = source::current()) {
    const char* what = "load of packed weights";
    const context c = enter(scope, what, here);
    if (!c) return;
    using unit = typename Packed::unit;
    touch_value(c, from.unit_at(first), Columns / unit::columns * unit::words * 4, false, what, here);
    touch_fragment(c, to, use::write, what, here);
    dequantise_units<typename Packed::format>(to, 0, 0, from.unit_at(first), [](int, int) { return 0U; });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
}

// The scale of an element among those that lie from scale_words on.
template <class Float>
std::uint32_t packed_scale_at(const std::uint32_t* scale_words, int row, int column) {
    const packed_place place = packed_scale_place_of(row, column % packed_columns);
    const std::uint32_t word = scale_words[column / packed_columns * packed_scale_words + place.word];
    return packed_scale_pair<Float>(word, place.pair);
}

template <class Float, int Columns, class Packed, class Scales>
void dequantise_scaled(const warpgroup& scope, fragment<Float, packed_rows, Columns, 4>& to, const Packed& from,
                       const Scales& scales, int first, source here = source::current()) {
    const char* what = "load of packed weights";
    const context c = enter(scope, what, here);
    if (!c) return;
    using unit = typename Packed::unit;
    const std::uint32_t* scale_words = scales.words_at(first);
    touch_value(c, from.unit_at(first), Columns / unit::columns * unit::words * 4, false, what, here);
    touch_value(c, scale_words, Columns / packed_columns * packed_scale_words * 4, false, what, here);
    touch_fragment(c, to, use::write, what, here);
    dequantise_units<typename Packed::format>(to, 0, 0, from.unit_at(first), [&](int row, int column) {
        return packed_scale_at<Float>(scale_words, row, column);
    });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
}

// Packed weights and scales in the registers of a warp: all of the words.
template <packable Format, int Columns>
struct packed_fragment : fragment_storage<std::uint32_t, Columns / packed_unit<Format>::columns * 512> {};
template <int Columns>
struct packed_scale_fragment : fragment_storage<std::uint32_t, Columns / packed_columns * packed_scale_words> {};

template <class Fragment>
void load_words(const warp& scope, Fragment& to, const std::uint32_t* from, const char* what, source here) {
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_value(c, from, sizeof to.values, false, what, here);
    touch_fragment(c, to, use::write, what, here);
    std::memcpy(to.values, from, sizeof to.values);
}
template <class Format, int Columns, class Packed>
void load_packed(const warp& scope, packed_fragment<Format, Columns>& to, const Packed& from,
                 source here = source::current()) {
    load_words(scope, to, from.unit_at(0), "load of packed weights", here);
}
template <int Columns, class Scales>
void load_packed_scales(const warp& scope, packed_scale_fragment<Columns>& to, const Scales& from,
                        source here = source::current()) {
    load_words(scope, to, from.words_at(0), "load of packed scales", here);
}

// A scale for each of 64 rows.
template <class Scope, class Scale, int Warps>
void load_row_scales(const Scope& scope, row_fragment<Scale, packed_rows, Warps>& to, const Scale* from, source here) {
    const context c = enter(scope, "load of packed scales", here);
    if (!c) return;
    touch_value(c, from, packed_rows * sizeof(Scale), false, "load of packed scales", here);
    touch_fragment(c, to, use::write, "load of packed scales", here);
    for (int row = 0; row < packed_rows; ++row) to.values[row] = from[packed_row_place(row)];
}

// Sixteen rows of them from FirstRow on, and columns from FirstColumn on.
template <int FirstRow, int FirstColumn, class Float, int Width, class Format, int Columns>
void dequantise_rows(const warp& scope, fragment<Float, 16, Width, 1>& to, const packed_fragment<Format, Columns>& from,
                     source here) {
    const context c = enter(scope, "dequantisation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "dequantisation", here);
    touch_fragment(c, to, use::write, "dequantisation", here);
    dequantise_units<Format>(to, FirstRow, FirstColumn, from.values, [](int, int) { return 0U; });
    spend_lanes(c, 16 * Width, "dequantisation");
}
template <int FirstRow, int FirstColumn, class Float, int Width, class Format, int Columns>
void dequantise_rows(const warp& scope, fragment<Float, 16, Width, 1>& to, const packed_fragment<Format, Columns>& from,
                     const packed_scale_fragment<Columns>& scales, source here) {
    const context c = enter(scope, "dequantisation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "dequantisation", here);
    touch_fragment(c, scales, use::read, "dequantisation", here);
    touch_fragment(c, to, use::write, "dequantisation", here);
    dequantise_units<Format>(to, FirstRow, FirstColumn, from.values,
                             [&](int row, int column) { return packed_scale_at<Float>(scales.values, row, column); });
    spend_lanes(c, 16 * Width, "dequantisation");
}

// int4 as grains, what lowers them, and what they are multiplied with.
template <int FirstRow, int FirstColumn, class Float, int Width, int Columns>
void grain_rows(const warp& scope, fragment<Float, 16, Width, 1>& to, const packed_fragment<int4x2, Columns>& from,
                source here) {
    const context c = enter(scope, "dequantisation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "dequantisation", here);
    touch_fragment(c, to, use::write, "dequantisation", here);
    each_pair<int4x2>(to, FirstRow, FirstColumn, from.values,
                      [](int, int, std::uint32_t word, int pair) { return packed_grains(word, pair); });
    spend_lanes(c, 16 * Width, "dequantisation");
}
template <class Float, int Columns>
void fill_lowering(const warp& scope, fragment<Float, 16, Columns, 1>& to, source here) {
    const context c = enter(scope, "fill", here);
    if (!c) return;
    touch_fragment(c, to, use::write, "fill", here);
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < Columns; ++column) {
            to.at(row, column) = Float::from_bits(static_cast<std::uint16_t>(packed_lowering(row / 8)));
        }
    }
}
template <class Float, int Columns>
void enlarge(const warp& scope, fragment<Float, 16, Columns, 1>& tile, source here) {
    const context c = enter(scope, "enlargement", here);
    if (!c || packed_enlargement<Float> == 1) return;
    touch_fragment(c, tile, use::update, "enlargement", here);
    for (Float& one : tile.values) one = Float(static_cast<float>(one) * packed_enlargement<Float>);
    spend_lanes(c, 16 * Columns, "enlargement");
}

}  // namespace imbrex::hw
