// stack_columns on the device (see ops/warp/stack_columns.hpp). Rows 8 to 15 are in the lanes of rows 0 to 7, so the
// right half of the columns moves below the left one within its lane. Rows 4 to 7 are 16 lanes after rows 0 to 3.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Lanes of rows 0 to 3 keep `own`; lanes of rows 4 to 7 get `other` of the lane 16 below.
template <class T>
IMBREX_KERNEL T lower_or_shuffled(T own, T other) {
    const T moved = __shfl_sync(all_lanes, other, lane() % 16);
    return lane() < 16 ? own : moved;
}

template <int Kept, class Warp, class T, int Columns>
IMBREX_KERNEL fragment<T, 16, Columns * Kept / 16, 1> stack_columns(const Warp&,
                                                                    const fragment<T, 16, Columns, 1>& tile, source) {
    using packed = fragment<T, 16, Columns * Kept / 16, 1>;
    packed result;
    const auto half_packed = [&](int strip, int item) {
        return tile.values[0][strip + item / 2 * (Columns / 16)][item % 2];
    };
#pragma unroll
    for (int strip = 0; strip < packed::strips; ++strip) {
#pragma unroll
        for (int item = 0; item < 4; ++item) {
            if constexpr (Kept == 16) {
                result.values[0][strip][item] = tile.values[0][strip][item];
            } else if constexpr (Kept == 8) {
                result.values[0][strip][item] = half_packed(strip, item);
            } else {
                result.values[0][strip][item] =
                    lower_or_shuffled(half_packed(strip, item), half_packed(strip + packed::strips, item));
            }
        }
    }
    return result;
}

template <int Kept, class Warp, class T>
IMBREX_KERNEL row_fragment<T, 16, 1> stack_columns(const Warp&, const row_fragment<T, 16, 1>& values, source) {
    row_fragment<T, 16, 1> result = values;
    if constexpr (Kept < 16) {
        if constexpr (Kept < 8) result.values[0][0] = lower_or_shuffled(values.values[0][0], values.values[0][0]);
        result.values[0][1] = result.values[0][0];
    }
    return result;
}

}  // namespace imbrex::hw
