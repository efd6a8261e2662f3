// Values held one per lane of a warp: computed by all lanes at once, and broadcast by shuffles.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw {

template <class T, int Count>
struct lane_values {
    T mine;
};

template <int Count, class F>
IMBREX_KERNEL auto gather_values(const warp&, F&& f, source) {
    lane_values<std::invoke_result_t<F, int>, Count> found{};
    const int number = lane();
    if (number < Count) found.mine = f(number);
    return found;
}

// All lanes get the value of that lane.
template <class T, int Count>
IMBREX_KERNEL T value_at(const warp&, const lane_values<T, Count>& values, int number, source) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>,
                  "imbrex: values exchanged between lanes must be trivially copyable, of a multiple of 4 bytes");
    T result = values.mine;
    auto* const words = reinterpret_cast<char*>(&result);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)); i += 4) {
        write_as(words + i, __shfl_sync(all_lanes, read_as<std::uint32_t>(words + i), number));
    }
    return result;
}

// The number of values that satisfy the predicate.
template <class T, int Count, class F>
IMBREX_KERNEL int count_values(const warp&, const lane_values<T, Count>& values, F&& f, source) {
    return __popc(__ballot_sync(all_lanes, lane() < Count && f(values.mine)));
}

// The largest f(value), a non-negative float: the bits of such floats order as integers.
template <class T, int Count, class F>
IMBREX_KERNEL float max_value(const warp&, const lane_values<T, Count>& values, F&& f, source) {
    const float mine = lane() < Count ? f(values.mine) : 0.0f;
    return __uint_as_float(__reduce_max_sync(all_lanes, __float_as_uint(mine)));
}

// The sum of f(value).
template <class T, int Count, class F>
IMBREX_KERNEL float sum_values(const warp&, const lane_values<T, Count>& values, F&& f, source) {
    float sum = lane() < Count ? f(values.mine) : 0.0f;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(all_lanes, sum, distance);
    return sum;
}

// Inserts the value at this index; later values move up by one, and the last one is dropped.
template <class T, int Count>
IMBREX_KERNEL void insert_value(const warp&, lane_values<T, Count>& values, int number, const T& value, source) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>,
                  "imbrex: values exchanged between lanes must be trivially copyable, of a multiple of 4 bytes");
    T before = values.mine;
    auto* const words = reinterpret_cast<char*>(&before);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)); i += 4) {
        write_as(words + i, __shfl_up_sync(all_lanes, read_as<std::uint32_t>(words + i), 1));
    }
    if (lane() == number) values.mine = value;
    if (lane() > number) values.mine = before;
}

// The inclusive prefix sum over the lanes.
template <class T, int Count>
IMBREX_KERNEL lane_values<T, Count> scan_values(const warp&, const lane_values<T, Count>& values, source) {
    lane_values<T, Count> sums = values;
#pragma unroll
    for (int distance = 1; distance < Count; distance *= 2) {
        const T before = __shfl_up_sync(all_lanes, sums.mine, distance);
        if (lane() >= distance) sums.mine += before;
    }
    return sums;
}

}  // namespace imbrex::hw
