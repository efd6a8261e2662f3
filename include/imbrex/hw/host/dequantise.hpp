// Dequantises packed weights (core/packed_weights.hpp) in the host world (dequantize in American spelling): the same
// words and the same arithmetic as on the device, element by element.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scalar.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace imbrex::hw {

// Two-wide 16-bit arithmetic by way of float. Float has more than twice the digits, so the double rounding of a sum or
// product is harmless. (Not for every multiply_add, but the ones here are exact.)
template <class Float>
struct half2_arithmetic {
    static std::uint32_t subtract(std::uint32_t a, std::uint32_t b) {
        const float_pair left = unpack2<Float>(a), right = unpack2<Float>(b);
        return pack2<Float>(left.low - right.low, left.high - right.high);
    }
    static std::uint32_t merge(std::uint32_t a, std::uint32_t mask, std::uint32_t b) { return (a & mask) | b; }
    static std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
        const float_pair left = unpack2<Float>(a), right = unpack2<Float>(b);
        return pack2<Float>(left.low * right.low, left.high * right.high);
    }
    static std::uint32_t multiply_add(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
        const float_pair left = unpack2<Float>(a), right = unpack2<Float>(b), more = unpack2<Float>(c);
        return pack2<Float>(std::fma(left.low, right.low, more.low), std::fma(left.high, right.high, more.high));
    }
    template <class Format>
    static std::uint32_t look_up(std::uint32_t nibbles) {
        std::uint32_t result = 0;
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t level = nibbles >> (4 * i) & 0xfU;
            result |= (Format::levels(static_cast<int>(level & 12U)) >> (8 * (level & 3U)) & 0xffU) << (8 * i);
        }
        return result;
    }
    static std::uint32_t pair_of(std::uint32_t a, std::uint32_t b, int i) {
        return (a >> (8 * i) & 0xffU) | (b >> (8 * i) & 0xffU) << 16;
    }
};

// As many rows as the tile has, from first_row on.
template <class Format, class Float, int Rows, int Columns, int Warps, class Scale>
void dequantise_units(fragment<Float, Rows, Columns, Warps>& to, int first_row, const std::uint32_t* units,
                      Scale scale) {
    using unit = packed_unit<Format>;
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; column += 2) {
            const packed_coord place = packed_coord_of<Format>(first_row + row, column % unit::columns);
            const std::uint32_t* own = units + column / unit::columns * unit::words;
            std::uint32_t other;
            if constexpr (unit::high_words_per_thread > 0) {
                other = packed_high_fields<Format>(own + packed_high_word<Format>(place),
                                                   packed_pair_of_thread<Format>(place));
            } else {
                other = scale(first_row + row, column);
            }
            const std::uint32_t floats =
                packed_floats<Format, Float, half2_arithmetic<Float>>(own[place.word], place.pair, other);
            to.at(row, column) = Float::from_bits(static_cast<std::uint16_t>(floats));
            to.at(row, column + 1) = Float::from_bits(static_cast<std::uint16_t>(floats >> 16));
        }
    }
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
    dequantise_units<typename Packed::format>(to, 0, from.unit_at(first), [](int, int) { return 0U; });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
}

// The scale of an element among the words at scale_words.
template <class Float>
std::uint32_t packed_scale_at(const std::uint32_t* scale_words, int row, int column) {
    const packed_coord place = packed_scale_coord_of(row, column % packed_columns);
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
    dequantise_units<typename Packed::format>(to, 0, from.unit_at(first), [&](int row, int column) {
        return packed_scale_at<Float>(scale_words, row, column);
    });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
}

// Packed weights and scales in the registers of a warp: all of the words.
template <packable Format, int Columns>
struct packed_fragment
    : fragment_storage<std::uint32_t, Columns / packed_unit<Format>::columns * packed_unit<Format>::words> {};
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

template <class Scope, class T, int Warps, class Scales>
void load_row_scales(const Scope& scope, row_fragment<T, packed_rows, Warps>& to, const Scales& from,
                     source here = source::current()) {
    const char* what = "load of the scales of rows";
    const context c = enter(scope, what, here);
    if (!c) return;
    touch_value(c, from.storage, sizeof from.storage, false, what, here);
    touch_fragment(c, to, use::write, what, here);
    for (int row = 0; row < packed_rows; ++row) to.values[row] = from.storage[packed_row_offset(row)];
}

template <int First, int Count, class Float, int Rows, int Columns, int Warps, class T, class... Minimums>
void scale_group(const warpgroup& scope, fragment<Float, Rows, Columns, Warps>& tile,
                 const row_fragment<T, Rows, Warps>& scales, float factor, source here, const Minimums&... minimums) {
    const char* what = "scaling of a group";
    const context c = enter(scope, what, here);
    if (!c) return;
    const auto rounded = [](float value) { return convert<float>(convert<Float>(value)); };
    (touch_fragment(c, minimums, use::read, what, here), ...);
    touch_fragment(c, scales, use::read, what, here);
    touch_fragment(c, tile, use::update, what, here);
    for (int row = 0; row < Rows; ++row) {
        const float scale = rounded(convert<float>(scales.values[row]) * factor);
        const float minimum = (0.0f + ... + rounded(convert<float>(minimums.values[row])));
        for (int column = First; column < First + Count; ++column) {
            tile.at(row, column) = convert<Float>(std::fma(convert<float>(tile.at(row, column)), scale, -minimum));
        }
    }
    spend_lanes(c, Rows * Count, what);
}
template <int First, int Count, class Float, int Rows, int Columns, int Warps, class T>
void scale_group(const warpgroup& scope, fragment<Float, Rows, Columns, Warps>& tile,
                 const row_fragment<T, Rows, Warps>& scales, float factor, const row_fragment<T, Rows, Warps>& minimums,
                 source here = source::current()) {
    scale_group<First, Count>(scope, tile, scales, factor, here, minimums);
}

// Dequantises 16 rows.
template <int FirstRow, class Float, class Format, int Columns>
void dequantise_rows(const warp& scope, fragment<Float, 16, Columns, 1>& to,
                     const packed_fragment<Format, Columns>& from, source here) {
    const context c = enter(scope, "dequantisation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "dequantisation", here);
    touch_fragment(c, to, use::write, "dequantisation", here);
    dequantise_units<Format>(to, FirstRow, from.values, [](int, int) { return 0U; });
    spend_lanes(c, 16 * Columns, "dequantisation");
}
template <int FirstRow, class Float, class Format, int Columns>
void dequantise_rows(const warp& scope, fragment<Float, 16, Columns, 1>& to,
                     const packed_fragment<Format, Columns>& from, const packed_scale_fragment<Columns>& scales,
                     source here) {
    const context c = enter(scope, "dequantisation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "dequantisation", here);
    touch_fragment(c, scales, use::read, "dequantisation", here);
    touch_fragment(c, to, use::write, "dequantisation", here);
    dequantise_units<Format>(to, FirstRow, from.values,
                             [&](int row, int column) { return packed_scale_at<Float>(scales.values, row, column); });
    spend_lanes(c, 16 * Columns, "dequantisation");
}

}  // namespace imbrex::hw
