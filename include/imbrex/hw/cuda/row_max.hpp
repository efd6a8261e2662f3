// Row maximum of a register tile by integer comparison, in half the instructions: nonnegative floats have the order of
// their bit patterns as integers, and sm_90 has a three-way integer maximum (DPX: __vimax3_s32) but only a two-way
// float one. As a signed integer a negative float is below all nonnegative ones; only among themselves negative floats
// are reversed. So if the running maximum is nonnegative, so is the result, and the integer maximum is right.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread_rows.hpp>

namespace imbrex::hw {

// Whether any row value of a warp is negative, or -0.
template <class Scope, int Rows, int Warps>
IMBREX_KERNEL bool any_negative(const Scope& scope, const row_fragment<float, Rows, Warps>& rows,
                                source here = source::current()) {
    bool found = false;
    visit_rows(
        scope, use::read, here, [&](int, const float& value) { found = found || __float_as_int(value) < 0; }, rows);
    return __any_sync(all_lanes, found);
}

// The running value and the row's elements, three at a time: the signed integer maximum, and the unsigned integer
// minimum.
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
// If all values are negative, the unsigned minimum is the largest float.
IMBREX_KERNEL float select_max(float max_as_int, float min_as_unsigned) {
    return __float_as_int(max_as_int) < 0 ? min_as_unsigned : max_as_int;
}

// The maximum of the running value and a lane's elements of the row. `negative`: whether any running value of the warp
// is negative; computed beforehand, so that nothing waits for it.
template <class Row>
IMBREX_KERNEL float thread_row_max(const Row& row, float from, bool negative) {
    float row_max = max_as_int(row, from);
    if (negative) row_max = select_max(row_max, min_as_unsigned(row, from));
    return row_max;
}

// The same for all rows: fold_rows with the maximum. The branch for negative rows comes first, so that the compiler can
// interleave what follows with the comparisons that always run.
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
        // Opaque to the compiler, which would otherwise move everything into the branch.
        [](int, float& value) { asm volatile(""
                                             : "+f"(value)); }, below);
    fold(into, [](const auto& row, float from) { return max_as_int(row, from); });
    visit_rows(
        scope, use::update, here, [](int, float& row_max, const float& other) { row_max = select_max(row_max, other); },
        into, below);
}

}  // namespace imbrex::hw
