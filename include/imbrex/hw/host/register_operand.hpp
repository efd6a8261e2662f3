// 8-bit operands in registers, upconverted when multiplied, in the host world. Nothing is permuted here.
#pragma once

#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/fragment.hpp>

#include <type_traits>

namespace imbrex::hw {

template <class Stored, int Rows, int Columns, register_layout Layout>
struct fragment_8bit {
    static_assert(Rows % 16 == 0 && Columns % 32 == 0,
                  "imbrex: 8-bit elements are held 16 rows by 32 columns at a time");
    fragment<Stored, Rows, Columns, 1> tile;
};

template <class Stored, int Rows, int Columns, register_layout Layout, class Shared>
void load_8bit(const warp& scope, fragment_8bit<Stored, Rows, Columns, Layout>& to, const Shared& from, source here) {
    static_assert(std::is_same_v<Stored, std::remove_const_t<typename Shared::element>> && Shared::rows == Rows &&
                      Shared::columns == Columns,
                  "imbrex: an 8-bit register operand is loaded from a shared tile of the same type and shape");
    load_shared(scope, to.tile, from, here);
}

template <class To, class From, class Place>
void upconvert_elements(const warp& scope, To& to, const From& from, const Place& place, source here) {
    const context c = enter_registers(scope, "upconversion", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "upconversion", here);
    touch_fragment(c, to, use::write, "upconversion", here);
    for (int row = 0; row < To::rows; ++row) {
        for (int column = 0; column < To::columns; ++column) to.at(row, column) = upconvert<fp16>(place(row, column));
    }
}
template <class Stored, int Rows, int Columns>
void upconvert_columns(const warp& scope, fragment<fp16, Rows, 16, 1>& to,
                       const fragment_8bit<Stored, Rows, Columns, register_layout::row_major>& from, int number,
                       source here) {
    upconvert_elements(
        scope, to, from.tile, [&](int row, int column) { return from.tile.at(row, 16 * number + column); }, here);
}
template <class Stored, int Rows, int Columns>
void upconvert_rows(const warp& scope, fragment<fp16, 16, Columns, 1, register_layout::column_major>& to,
                    const fragment_8bit<Stored, Rows, Columns, register_layout::column_major>& from, int number,
                    source here) {
    upconvert_elements(
        scope, to, from.tile, [&](int row, int column) { return from.tile.at(16 * number + row, column); }, here);
}

template <class T, int Rows>
void permute_pairs(const warp& scope, fragment<T, Rows, 16, 1>& tile, source here) {
    static_assert(sizeof(T) == 2, "imbrex: what is multiplied with upconverted elements has 16 bits");
    touch_fragment(enter_registers(scope, "column permutation", here), tile, use::update, "column permutation", here);
}

template <int Rows, int Columns, class Factor>
void scale_16_rows(const warp& scope, fragment<float, Rows, Columns, 1>& tile, const Factor& factor, source here) {
    visit(
        scope, use::update, here, [&](int row, int, float& value) { value *= factor(row / 16); }, tile);
}

}  // namespace imbrex::hw
