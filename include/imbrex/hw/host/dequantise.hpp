// Packed weights (core/packed_weights.hpp) in the host world: the same words and the same arithmetic, element by element.
#pragma once

#include <imbrex/core/numeric.hpp>
#include <imbrex/core/packed_weights.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/scalar.hpp>

#include <cstdint>

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

template <class Format, int Columns, class Float, class Scale>
void dequantise_units(fragment<Float, packed_rows, Columns, 4>& to, const std::uint32_t* units, Scale scale) {
    using unit = packed_unit<Format>;
    for (int row = 0; row < packed_rows; ++row) {
        for (int column = 0; column < Columns; column += 2) {
            const packed_place place = packed_place_of<Format>(row, column % unit::columns);
            const std::uint32_t word = units[column / unit::columns * unit::words + place.word];
            const std::uint32_t floats =
                packed_floats<Format, Float, float_pairs<Float>>(word, place.pair, scale(row, column));
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
    dequantise_units<typename Packed::format>(to, from.unit_at(first), [](int, int) { return 0U; });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
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
    dequantise_units<typename Packed::format>(to, from.unit_at(first), [&](int row, int column) {
        const packed_place place = packed_scale_place_of(row, column % packed_columns);
        const std::uint32_t word = scale_words[column / packed_columns * packed_scale_words + place.word];
        return packed_scale_pair<Float>(word, place.pair);
    });
    spend_lanes(c, packed_rows * Columns, "dequantisation");
}

}  // namespace imbrex::hw
