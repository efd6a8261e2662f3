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

// fold_rows with the larger of two; `negative` says whether any of the warp's rows begins with a negative value: asked before, so
// that nothing waits for the answer. If so, the smallest are found too, as integers without a sign: where all of a row are
// negative, that is the largest number. It is done in a branch that ends before all else begins, so that the compiler is free to put
// what follows among the comparisons that are always made.
template <class Scope, int Rows, int Columns, int Warps>
IMBREX_KERNEL void fold_rows_largest(const Scope& scope, row_fragment<float, Rows, Warps>& into,
                                     const fragment<float, Rows, Columns, Warps>& tile, bool negative,
                                     source = source::current()) {
    using tile_type = fragment<float, Rows, Columns, Warps>;
    check_scope<tile_type>(scope);
    // Each row's value and elements, three at a time, by a comparison of integers.
    const auto fold = [&](row_fragment<float, Rows, Warps>& rows, auto compare) {
#pragma unroll
        for (int block = 0; block < tile_type::blocks; ++block) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                int one = __float_as_int(rows.values[block][half]);
#pragma unroll
                for (int strip = 0; strip < tile_type::strips; ++strip) {
                    const float* const two = &tile.values[block][strip][2 * half];
                    one = compare(one, __float_as_int(two[0]), __float_as_int(two[1]));
                }
                rows.values[block][half] = __int_as_float(one);
            }
        }
    };
    row_fragment<float, Rows, Warps> below = into;
    if (negative) {
        fold(below, [](int a, int b, int c) {
            return static_cast<int>(
                __vimin3_u32(static_cast<unsigned>(a), static_cast<unsigned>(b), static_cast<unsigned>(c)));
        });
    }
    visit_rows(
        scope, use::update, source::current(),
        // What the compiler cannot see through, or it would put all of it into the branch.
        [](int, float& value) { asm volatile(""
                                             : "+f"(value)); }, below);
    fold(into, [](int a, int b, int c) { return __vimax3_s32(a, b, c); });
    visit_rows(
        scope, use::update, source::current(),
        [](int, float& most, const float& other) { most = __float_as_int(most) < 0 ? other : most; }, into, below);
}

}  // namespace imbrex::hw
