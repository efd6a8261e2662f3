// The largest of a row's elements, found as the device finds it (hw/cuda/largest.hpp): who says that no row begins with a negative
// value where one does gets what integers give.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/math.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace imbrex::hw {

template <class Scope, int Rows, int Warps>
bool any_negative(const Scope& scope, const row_fragment<float, Rows, Warps>& rows, source here = source::current()) {
    bool found = false;
    visit_rows(
        scope, use::read, here, [&](int, const float& value) { found = found || std::signbit(value); }, rows);
    return found;
}

template <class Scope, int Rows, int Columns, int Warps>
void fold_rows_largest(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                       const fragment<float, Rows, Columns, Warps>& tile, bool negative,
                       source here = source::current()) {
    if (negative) {
        fold_rows(
            scope, into, tile, [](float a, float b) { return hw::max(a, b); }, here);
    } else {
        fold_rows(
            scope, into, tile,
            [](float a, float b) { return std::bit_cast<std::int32_t>(b) > std::bit_cast<std::int32_t>(a) ? b : a; },
            here);
    }
}

}  // namespace imbrex::hw
