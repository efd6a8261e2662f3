// Host model of hw/cuda/row_max.hpp. A wrong `negative` flag gives the same wrong result as the integer comparison on
// the device.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/thread_rows.hpp>

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

template <class Row>
float thread_row_max(const Row& row, float from, bool negative) {
    const auto exceeds = [&](float a, float b) {
        return negative ? a > b : std::bit_cast<std::int32_t>(a) > std::bit_cast<std::int32_t>(b);
    };
    row.template for_each_pair<0, Row::columns>([&](float a, float b) {
        if (exceeds(a, from)) from = a;
        if (exceeds(b, from)) from = b;
    });
    return from;
}

template <class Scope, int Rows, int Columns, int Warps>
void fold_row_max(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                  const fragment<float, Rows, Columns, Warps>& tile, bool negative, source here = source::current()) {
    const auto one = [&](const auto& row, float& value) { value = thread_row_max(row, value, negative); };
    visit_thread_rows<0>(scope, here, one, tile, into);
    visit_thread_rows<1>(scope, here, one, tile, into);
}

}  // namespace imbrex::hw
