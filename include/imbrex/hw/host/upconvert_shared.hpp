// Upconversion of an 8-bit shared tile into a 16-bit one in the host world.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/core/upconversion.hpp>
#include <imbrex/hw/host/copy_shared.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <type_traits>

namespace imbrex::hw {

template <class To, class From>
void upconvert_shared(const warp& scope, const To& to, const From& from, int valid_rows, float factor, source here) {
    using element = std::remove_const_t<typename To::element>;
    const char* what = "upconversion of shared memory";
    static_assert(To::rows == From::rows && To::columns == From::columns && To::columns % 16 == 0,
                  "imbrex: a shared tile is upconverted to one of the same shape, 16 columns at a time");
    const context c = enter(scope, what, here);
    if (!c) return;
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, from, false, 0, what, here);
        touch_ordinary(*c.on, *c.by, to, true, 0, what, here);
    }
    for (int row = 0; row < To::rows; ++row) {
        for (int column = 0; column < To::columns; ++column) {
            *to.address(row, column) = row < valid_rows
                                           ? convert<element>(convert<float>(*from.address(row, column)) * factor)
                                           : element(0.0f);
        }
    }
    spend_lanes(c, To::rows * To::columns, "upconversion");
}
template <class To, class From>
void upconvert_shared(const warp& scope, const To& to, const From& from, int valid_rows, source here) {
    upconvert_shared(scope, to, from, valid_rows, 1.0f, here);
}

}  // namespace imbrex::hw
