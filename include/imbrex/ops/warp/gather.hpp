// Many look-ups in the time of one: the lanes of a warp ask for a value each, say from a table in global memory, and any of the
// values can then be had by all of them, without another trip to memory.
//
//     const auto pages = warp_gather<8>(self, [&](int number) { return table[first + number]; });
//     for (int i = 0; i < 8; ++i) load_async(self, ..., tensor.at(warp_broadcast(self, pages, i), 0, 0), ...);
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/lanes.hpp>
#include <imbrex/hw/scope.hpp>

#include <utility>

namespace imbrex {

// Count values of `f(number)`, number from 0 on. Nothing is said about the order in which it is called.
template <int Count, class F>
IMBREX_KERNEL auto warp_gather(const warp& scope, F&& f, source here = source::current()) {
    static_assert(Count >= 1 && Count <= warp::threads, "imbrex: a warp looks up to 32 values up at once");
    return hw::gather_values<Count>(scope, std::forward<F>(f), here);
}

// One of them, the same to all lanes.
template <class T, int Count>
IMBREX_KERNEL T warp_broadcast(const warp& scope, const hw::lane_values<T, Count>& found, int number,
                               source here = source::current()) {
    return hw::value_at(scope, found, number, here);
}

// How many of them are such that f(value).
template <class T, int Count, class F>
IMBREX_KERNEL int warp_count_if(const warp& scope, const hw::lane_values<T, Count>& found, F&& f,
                                source here = source::current()) {
    return hw::count_values(scope, found, std::forward<F>(f), here);
}

// The largest f(value) of them: floats that are not negative.
template <class T, int Count, class F>
IMBREX_KERNEL float warp_max(const warp& scope, const hw::lane_values<T, Count>& found, F&& f,
                             source here = source::current()) {
    return hw::max_value(scope, found, std::forward<F>(f), here);
}

// The value becomes the one of this number; those from there on have a number more, and the last is lost.
template <class T, int Count>
IMBREX_KERNEL void warp_insert(const warp& scope, hw::lane_values<T, Count>& found, int number, const T& value,
                               source here = source::current()) {
    hw::insert_value(scope, found, number, value, here);
}

// Each of them added to all those before it.
template <class T, int Count>
IMBREX_KERNEL hw::lane_values<T, Count> warp_inclusive_sum(const warp& scope, const hw::lane_values<T, Count>& found,
                                                           source here = source::current()) {
    return hw::scan_values(scope, found, here);
}

}  // namespace imbrex
