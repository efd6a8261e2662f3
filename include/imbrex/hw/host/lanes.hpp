// Values held one per lane of a warp, in the host world: an array.
#pragma once

#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <type_traits>

namespace imbrex::hw {

template <class T, int Count>
struct lane_values {
    T all[Count];
};

template <int Count, class F>
auto gather_values(const warp& scope, F&& f, source here) {
    lane_values<std::invoke_result_t<F, int>, Count> found{};
    if (!enter(scope, "warp gather", here)) return found;
    for (int number = 0; number < Count; ++number) found.all[number] = f(number);
    return found;
}

template <class T, int Count>
T value_at(const warp& scope, const lane_values<T, Count>& values, int number, source here) {
    const context c = enter(scope, "warp broadcast", here);
    if (c.checked() && (number < 0 || number >= Count)) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block,
                     str_cat("value ", number, " requested; the lanes have ", Count),
                     {{c.by->name(), "warp broadcast", here.file, here.line}});
    }
    return c ? values.all[number] : T{};
}

template <class T, int Count, class F>
int count_values(const warp& scope, const lane_values<T, Count>& values, F&& f, source here) {
    if (!enter(scope, "warp count", here)) return 0;
    int found = 0;
    for (const T& value : values.all) found += f(value) ? 1 : 0;
    return found;
}

// The largest f(value), a non-negative float.
template <class T, int Count, class F>
float max_value(const warp& scope, const lane_values<T, Count>& values, F&& f, source here) {
    float most = 0;
    if (!enter(scope, "warp maximum", here)) return most;
    for (const T& value : values.all) most = std::max(most, f(value));
    return most;
}

// The sum of f(value).
template <class T, int Count, class F>
float sum_values(const warp& scope, const lane_values<T, Count>& values, F&& f, source here) {
    float sum = 0;
    if (!enter(scope, "warp sum", here)) return sum;
    for (const T& value : values.all) sum += f(value);
    return sum;
}

// Inserts the value at this index; later values move up by one, and the last one is dropped.
template <class T, int Count>
void insert_value(const warp& scope, lane_values<T, Count>& values, int number, const T& value, source here) {
    if (!enter(scope, "warp insert", here) || number >= Count) return;
    std::copy_backward(values.all + number, values.all + Count - 1, values.all + Count);
    values.all[number] = value;
}

template <class T, int Count>
lane_values<T, Count> scan_values(const warp& scope, const lane_values<T, Count>& values, source here) {
    lane_values<T, Count> sums = values;
    if (!enter(scope, "warp prefix sum", here)) return sums;
    for (int number = 1; number < Count; ++number) sums.all[number] += sums.all[number - 1];
    return sums;
}

}  // namespace imbrex::hw
