// Upconversion of 8-bit operands to 16 bits in the host world. Nothing is permuted here.
#pragma once

#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/fragment.hpp>

#include <type_traits>

namespace imbrex::hw {

template <class T, int Rows, int Columns, register_layout Layout, class Shared>
void load_upconverted(const warp& scope, fragment<T, Rows, Columns, 1, Layout>& to, const Shared& from, source here) {
    const char* what = "load of 8-bit elements";
    using stored = std::remove_const_t<typename Shared::element>;
    static_assert(upconverts_to<stored, T> && Rows % 16 == 0 && Columns % 16 == 0 && Shared::rows == Rows &&
                      Shared::columns == Columns,
                  "imbrex: e4m3 and int8 are upconverted to bf16 and fp16, from a shared tile of the same shape");
    static_assert(Layout == register_layout::row_major || Rows == 16,
                  "imbrex: a column-major upconverted operand has a multiple of 16 rows");
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) touch_ordinary(*c.on, *c.by, from, false, partition_way_of<Layout>, what, here);
    touch_fragment(c, to, use::write, what, here);
    for (int row = 0; row < Rows; ++row) {
        for (int column = 0; column < Columns; ++column) to.at(row, column) = upconvert<T>(*from.address(row, column));
    }
    spend_lanes(c, Rows * Columns, "load");
}

template <class Stored, class T, int Rows, int Columns>
void permute_columns(const warp& scope, fragment<T, Rows, Columns, 1>& tile, source here) {
    static_assert(sizeof(T) == 2 && Columns % 16 == 0,
                  "imbrex: what is multiplied with upconverted elements has 16 bits");
    visit(
        scope, use::update, here,
        [](int, int, T& value) { value = convert<T>(convert<float>(value) * upconversion_prescale<Stored, T>); }, tile);
}
template <int Rows, int Columns>
void unpermute_columns(const warp& scope, fragment<float, Rows, Columns, 1>& tile, source here) {
    static_assert(Columns % 16 == 0, "imbrex: sixteen columns have an order of their own");
    touch_fragment(enter_registers(scope, "column permutation", here), tile, use::update, "column permutation", here);
}

template <int Rows, int Columns, class Factor>
void scale_16_columns(const warp& scope, fragment<float, Rows, Columns, 1>& tile, const Factor& factor, source here) {
    visit(
        scope, use::update, here, [&](int, int column, float& value) { value *= factor(column / 16); }, tile);
}

}  // namespace imbrex::hw
