// Values of a warp, one in each lane: found by all lanes at once, and told by one to all.
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

// All lanes get the one of that number.
template <class T, int Count>
IMBREX_KERNEL T value_at(const warp&, const lane_values<T, Count>& values, int number, source) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>,
                  "imbrex: lanes tell one another words of four bytes");
    T result = values.mine;
    auto* const words = reinterpret_cast<char*>(&result);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)); i += 4) {
        write_as(words + i, __shfl_sync(all_lanes, read_as<std::uint32_t>(words + i), number));
    }
    return result;
}

// How many of the values are as asked for.
template <class T, int Count, class F>
IMBREX_KERNEL int count_values(const warp&, const lane_values<T, Count>& values, F&& f, source) {
    return __popc(__ballot_sync(all_lanes, lane() < Count && f(values.mine)));
}

// The largest f(value), a float that is not negative: their bits are in the same order.
template <class T, int Count, class F>
IMBREX_KERNEL float max_value(const warp&, const lane_values<T, Count>& values, F&& f, source) {
    const float mine = lane() < Count ? f(values.mine) : 0.0f;
    return __uint_as_float(__reduce_max_sync(all_lanes, __float_as_uint(mine)));
}

// All from this number on move up by one, the last is lost, and the value takes its place.
template <class T, int Count>
IMBREX_KERNEL void insert_value(const warp&, lane_values<T, Count>& values, int number, const T& value, source) {
    static_assert(sizeof(T) % 4 == 0 && std::is_trivially_copyable_v<T>,
                  "imbrex: lanes tell one another words of four bytes");
    T before = values.mine;
    auto* const words = reinterpret_cast<char*>(&before);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T)); i += 4) {
        write_as(words + i, __shfl_up_sync(all_lanes, read_as<std::uint32_t>(words + i), 1));
    }
    if (lane() == number) values.mine = value;
    if (lane() > number) values.mine = before;
}

// Each lane's value added to all those before it.
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
