// The largest of a row's elements in half the instructions: numbers that are not negative are in the order of their bits, as
// integers, and of integers sm_90 compares three at a time, of floats two. A negative number is below them all there too; only
// among themselves negative numbers are in the opposite order. So if what a row begins with is not negative, neither is its
// largest, and integers find it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/held_rows.hpp>

namespace imbrex::hw {

// Whether any value of the rows that a warp holds is negative, or -0.
template <class Scope, int Rows, int Warps>
IMBREX_KERNEL bool any_negative(const Scope& scope, const row_fragment<float, Rows, Warps>& rows,
                                source here = source::current()) {
    bool found = false;
    visit_rows(
        scope, use::read, here, [&](int, const float& value) { found = found || __float_as_int(value) < 0; }, rows);
    return __any_sync(all_lanes, found);
}

// What a row begins with and its elements, three at a time: the largest as integers, and the smallest as integers without a sign.
template <class Row>
IMBREX_KERNEL float largest_integer(const Row& row, float from) {
    int most = __float_as_int(from);
    row.template each_two<0, Row::columns>(
        [&](float a, float b) { most = __vimax3_s32(most, __float_as_int(a), __float_as_int(b)); });
    return __int_as_float(most);
}
template <class Row>
IMBREX_KERNEL float smallest_bits(const Row& row, float from) {
    unsigned least = __float_as_uint(from);
    row.template each_two<0, Row::columns>(
        [&](float a, float b) { least = __vimin3_u32(least, __float_as_uint(a), __float_as_uint(b)); });
    return __uint_as_float(least);
}
// Where all of a row are negative, it is the second that is the largest number.
IMBREX_KERNEL float larger_of(float largest_integer, float smallest_bits) {
    return __float_as_int(largest_integer) < 0 ? smallest_bits : largest_integer;
}

// The larger of what a row begins with and what a lane holds of it; `negative` says whether any of the warp's rows begins with a
// negative value: asked before, so that nothing waits for the answer.
template <class Row>
IMBREX_KERNEL float largest_held(const Row& row, float from, bool negative) {
    float most = largest_integer(row, from);
    if (negative) most = larger_of(most, smallest_bits(row, from));
    return most;
}

// The same of all rows: fold_rows with the larger of two. Negative rows have their branch before all else begins, so that the
// compiler is free to put what follows among the comparisons that are always made.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void fold_rows_largest(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                                     const fragment<float, Rows, Columns, Warps>& tile, bool negative,
                                     source here = source::current()) {
    const auto fold = [&](row_fragment<float, Rows, Warps>& rows, auto look) {
        const auto one = [&](const auto& row, float& value) { value = look(row, value); };
        visit_held_rows<0>(scope, here, one, tile, rows);
        visit_held_rows<1>(scope, here, one, tile, rows);
    };
    row_fragment<float, Rows, Warps> below = into;
    if (negative) fold(below, [](const auto& row, float from) { return smallest_bits(row, from); });
    visit_rows(
        scope, use::update, here,
        // What the compiler cannot see through, or it would put all of it into the branch.
        [](int, float& value) { asm volatile(""
                                             : "+f"(value)); }, below);
    fold(into, [](const auto& row, float from) { return largest_integer(row, from); });
    visit_rows(
        scope, use::update, here, [](int, float& most, const float& other) { most = larger_of(most, other); }, into,
        below);
}

}  // namespace imbrex::hw
