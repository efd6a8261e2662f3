// Searches in vectorised rows in the host world. The loops are written so that compilers vectorise them: floats are
// compared as integers, since a float maximum must not be reordered, and bins are computed before they are updated.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/vector_row.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace imbrex::hw {

// Columns that are searched together. For most of a row the search only finds that nothing is there.
inline constexpr int searched_at_once = 64;

// to = f(column, element of from)
template <class F, class T, class From, int Columns>
void map_vector_row_columns(const warp& scope, vector_row_fragment<T, 1, Columns>& to, F f,
                            const vector_row_fragment<From, 1, Columns>& from, source here) {
    static_assert(Columns % searched_at_once == 0, "imbrex: a searched row must have a multiple of 64 columns");
    const context c = enter_registers(scope, "elementwise operation", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "elementwise operation", here);
    touch_fragment(c, to, use::write, "elementwise operation", here);
    // In parts of a local array: the tiles may alias, which would prevent vectorisation.
    for (int first = 0; first < Columns; first += searched_at_once) {
        float part[searched_at_once];
        for (int i = 0; i < searched_at_once; ++i) part[i] = f(first + i, convert<float>(from.values[first + i]));
        for (int i = 0; i < searched_at_once; ++i) to.values[first + i] = convert<T>(part[i]);
    }
    spend_lanes(c, Columns, "elementwise");
}

// element of this column = f(element); no effect if the tile does not have the column.
template <class F, int Columns>
void update_vector_row_element(const warp& scope, vector_row_fragment<float, 1, Columns>& tile, int column, F f,
                               source here) {
    const context c = enter_registers(scope, "change of one element", here);
    if (!c) return;
    touch_fragment(c, tile, use::update, "change of one element", here);
    if (column >= 0 && column < Columns) tile.values[column] = f(tile.values[column]);
}

// The bits of a float as an integer of the same order, and back.
inline std::int32_t ordered_as_integer(std::int32_t bits) {
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

template <int Columns>
float vector_row_max(const warp& scope, const vector_row_fragment<float, 1, Columns>& tile, source here) {
    const context c = enter(scope, "row maximum", here);
    if (!c) return 0;
    touch_fragment(c, tile, use::read, "row maximum", here);
    std::int32_t most = std::numeric_limits<std::int32_t>::min();
    for (int column = 0; column < Columns; ++column) {
        most = std::max(most, ordered_as_integer(std::bit_cast<std::int32_t>(tile.values[column])));
    }
    spend_lanes(c, Columns, "elementwise");
    return std::bit_cast<float>(ordered_as_integer(most));
}

template <int Columns>
int first_vector_row_column_of(const warp& scope, const vector_row_fragment<float, 1, Columns>& tile, float value,
                               source here) {
    const context c = enter(scope, "search for a value", here);
    if (!c) return 0;
    touch_fragment(c, tile, use::read, "search for a value", here);
    spend_lanes(c, Columns, "elementwise");
    return static_cast<int>(std::find(tile.values, tile.values + Columns, value) - tile.values);
}

template <class F, int Columns>
std::uint64_t vector_row_sum(const warp& scope, const vector_row_fragment<float, 1, Columns>& tile, F f, source here) {
    const context c = enter(scope, "sum over a row", here);
    if (!c) return 0;
    touch_fragment(c, tile, use::read, "sum over a row", here);
    std::uint64_t amounts[Columns];
    for (int column = 0; column < Columns; ++column) amounts[column] = f(column, tile.values[column]);
    std::uint64_t sum = 0;
    for (const std::uint64_t one : amounts) sum += one;
    spend_lanes(c, Columns, "elementwise");
    return sum;
}

// Adds amount(column, element) to bin bin_of(column, element), or to none if that is negative. The bins are this
// warp's.
template <class BinOf, class Amount, int Columns, class Vector>
void add_vector_row_to_bins(const warp& scope, Vector& bins, const vector_row_fragment<float, 1, Columns>& tile,
                            BinOf bin_of, Amount amount, source here) {
    const context c = enter(scope, "adding to bins", here);
    if (!c) return;
    touch_fragment(c, tile, use::read, "adding to bins", here);
    if (c.checked()) {
        touch_ordinary(*c.on, *c.by, bins, false, 0, "adding to bins", here);
        touch_ordinary(*c.on, *c.by, bins, true, 0, "adding to bins", here);
    }
    spend_lanes(c, Columns, "elementwise");
    for (int first = 0; first < Columns; first += searched_at_once) {
        int bin[searched_at_once];
        int found = 0;
        for (int i = 0; i < searched_at_once; ++i) {
            bin[i] = bin_of(first + i, tile.values[first + i]);
            found += bin[i] >= 0 ? 1 : 0;
        }
        if (found == 0) continue;
        std::uint64_t amounts[searched_at_once];
        for (int i = 0; i < searched_at_once; ++i) amounts[i] = amount(first + i, tile.values[first + i]);
        for (int i = 0; i < searched_at_once; ++i) {
            if (bin[i] >= 0) *bins.address(bin[i]) += amounts[i];
        }
    }
}

// The bin at which the running sum over the bins of all warps, starting from `before`, reaches the target.
struct bin_found {
    int bin;                // the number of bins if the target is not reached
    std::uint64_t before;   // the sum before this bin
    std::uint64_t content;  // of this bin
};

template <int Warps, class Vector>
bin_found find_bin(const warp& scope, const Vector (&bins)[Warps], std::uint64_t before, std::uint64_t target,
                   source here) {
    bin_found found{Vector::length, before, 0};
    const context c = enter(scope, "search for a bin", here);
    if (!c) return found;
    if (c.checked()) {
        for (const Vector& one : bins) touch_ordinary(*c.on, *c.by, one, false, 0, "search for a bin", here);
    }
    spend_lanes(c, Warps * Vector::length, "elementwise");
    for (int bin = 0; bin < Vector::length; ++bin) {
        std::uint64_t content = 0;
        for (const Vector& one : bins) content += *one.address(bin);
        if (found.before + content >= target) return bin_found{bin, found.before, content};
        found.before += content;
    }
    return found;
}

}  // namespace imbrex::hw
