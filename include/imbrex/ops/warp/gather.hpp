// Gathers by a warp: each lane loads one value, say from a block table in global memory, and any of the values can then
// be broadcast to all lanes by a shuffle, without another memory access. With `read_element` (ops/memory/read_element.hpp)
// the checker sees the loads.
//
//     const auto pages = warp_gather<8>(self, [&](int number) { return read_element(table, first + number); });
//     for (int i = 0; i < 8; ++i) load_async(self, ..., tensor.at(warp_broadcast(self, pages, i), 0, 0), ...);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/scope.hpp>

#include <utility>

namespace imbrex {

// Count values f(number), number from 0 on, in any order of calls.
template <int Count, class F>
IMBREX_KERNEL auto warp_gather(const warp& scope, F&& f, source here = source::current()) {
    static_assert(Count >= 1 && Count <= warp::threads, "imbrex: warp_gather takes 1 to 32 values");
    return hw::gather_values<Count>(scope, std::forward<F>(f), here);
}

// One of the values, to all lanes.
template <class T, int Count>
IMBREX_KERNEL T warp_broadcast(const warp& scope, const hw::lane_values<T, Count>& found, int number,
                               source here = source::current()) {
    return hw::value_at(scope, found, number, here);
}

// The number of values for which f(value) is true.
template <class T, int Count, class F>
IMBREX_KERNEL int warp_count_if(const warp& scope, const hw::lane_values<T, Count>& found, F&& f,
                                source here = source::current()) {
    return hw::count_values(scope, found, std::forward<F>(f), here);
}

// The largest f(value), which must be a non-negative float.
template <class T, int Count, class F>
IMBREX_KERNEL float warp_max(const warp& scope, const hw::lane_values<T, Count>& found, F&& f,
                             source here = source::current()) {
    return hw::max_value(scope, found, std::forward<F>(f), here);
}

// The sum of f(value), a float; all lanes get the same bits.
template <class T, int Count, class F>
IMBREX_KERNEL float warp_sum(const warp& scope, const hw::lane_values<T, Count>& found, F&& f,
                             source here = source::current()) {
    return hw::sum_values(scope, found, std::forward<F>(f), here);
}

// Inserts the value at this index; later values move up by one, and the last one is dropped.
template <class T, int Count>
IMBREX_KERNEL void warp_insert(const warp& scope, hw::lane_values<T, Count>& found, int number, const T& value,
                               source here = source::current()) {
    hw::insert_value(scope, found, number, value, here);
}

// The inclusive prefix sum.
template <class T, int Count>
IMBREX_KERNEL hw::lane_values<T, Count> warp_inclusive_sum(const warp& scope, const hw::lane_values<T, Count>& found,
                                                           source here = source::current()) {
    return hw::scan_values(scope, found, here);
}

}  // namespace imbrex
