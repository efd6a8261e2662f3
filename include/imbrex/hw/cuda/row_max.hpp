// The largest of a row's elements in half the instructions: numbers that are not negative are in the order of their bits, as
// integers, and of integers sm_90 compares three at a time, of floats two. A negative number is below them all there too; only
// among themselves negative numbers are in the opposite order. So if what a row begins with is not negative, neither is its
// largest, and integers find it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread_rows.hpp>

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
IMBREX_KERNEL float max_as_int(const Row& row, float from) {
    int row_max = __float_as_int(from);
    row.template for_each_pair<0, Row::columns>(
        [&](float a, float b) { row_max = __vimax3_s32(row_max, __float_as_int(a), __float_as_int(b)); });
    return __int_as_float(row_max);
}
template <class Row>
IMBREX_KERNEL float min_as_unsigned(const Row& row, float from) {
    unsigned row_min_bits = __float_as_uint(from);
    row.template for_each_pair<0, Row::columns>(
        [&](float a, float b) { row_min_bits = __vimin3_u32(row_min_bits, __float_as_uint(a), __float_as_uint(b)); });
    return __uint_as_float(row_min_bits);
}
// Where all of a row are negative, it is the second that is the largest number.
IMBREX_KERNEL float select_max(float max_as_int, float min_as_unsigned) {
    return __float_as_int(max_as_int) < 0 ? min_as_unsigned : max_as_int;
}

// The larger of what a row begins with and what a lane holds of it; `negative` says whether any of the warp's rows begins with a
// negative value: asked before, so that nothing waits for the answer.
template <class Row>
IMBREX_KERNEL float thread_row_max(const Row& row, float from, bool negative) {
    float row_max = max_as_int(row, from);
    if (negative) row_max = select_max(row_max, min_as_unsigned(row, from));
    return row_max;
}

// The same of all rows: fold_rows with the larger of two. Negative rows have their branch before all else begins, so that the
// compiler is free to put what follows among the comparisons that are always made.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void fold_row_max(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                                const fragment<float, Rows, Columns, Warps>& tile, bool negative,
                                source here = source::current()) {
    const auto fold = [&](row_fragment<float, Rows, Warps>& rows, auto look) {
        const auto one = [&](const auto& row, float& value) { value = look(row, value); };
        visit_thread_rows<0>(scope, here, one, tile, rows);
        visit_thread_rows<1>(scope, here, one, tile, rows);
    };
    row_fragment<float, Rows, Warps> below = into;
    if (negative) fold(below, [](const auto& row, float from) { return min_as_unsigned(row, from); });
    visit_rows(
        scope, use::update, here,
        // What the compiler cannot see through, or it would put all of it into the branch.
        [](int, float& value) { asm volatile(""
                                             : "+f"(value)); }, below);
    fold(into, [](const auto& row, float from) { return max_as_int(row, from); });
    visit_rows(
        scope, use::update, here, [](int, float& row_max, const float& other) { row_max = select_max(row_max, other); },
        into, below);
}

}  // namespace imbrex::hw
