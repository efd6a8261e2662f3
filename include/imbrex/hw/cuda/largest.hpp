// The largest of a row's elements in half the instructions: numbers that are not negative are in the order of their bits, as
// integers, and of integers sm_90 compares three at a time, of floats two. A negative number is below them all there too; only
// among themselves negative numbers are in the opposite order. So if what a row begins with is not negative, neither is its
// largest, and integers find it.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>

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

// fold_rows with the larger of two; `negative` says whether any of the warp's rows begins with a negative value. Asked before, so
// that nothing waits for the answer, which is hardly ever yes. Then floats are compared first, in a branch, and what they gave
// is put in the place of what the integers gave: that ends the branch before all else begins, so that the compiler is free to put
// what follows among the comparisons of the integers.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void fold_rows_largest(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                                     const fragment<float, Rows, Columns, Warps>& tile, bool negative,
                                     source here = source::current()) {
    using tile_type = fragment<float, Rows, Columns, Warps>;
    row_fragment<float, Rows, Warps> slowly = into;
    if (negative)
        fold_rows(
            scope, slowly, tile, [](float a, float b) { return fmaxf(a, b); }, here);
    int chosen = negative ? 1 : 0;
    // What the compiler cannot see through, or it would put the integers into the branch.
    asm volatile("" : "+r"(chosen));
#pragma unroll
    for (int block = 0; block < tile_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            asm volatile("" : "+f"(slowly.values[block][half]));
        }
    }
#pragma unroll
    for (int block = 0; block < tile_type::blocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            int most = __float_as_int(into.values[block][half]);
#pragma unroll
            for (int strip = 0; strip < tile_type::strips; ++strip) {
                const float* const two = &tile.values[block][strip][2 * half];
                most = __vimax3_s32(most, __float_as_int(two[0]), __float_as_int(two[1]));
            }
            into.values[block][half] = chosen != 0 ? slowly.values[block][half] : __int_as_float(most);
        }
    }
}

}  // namespace imbrex::hw
