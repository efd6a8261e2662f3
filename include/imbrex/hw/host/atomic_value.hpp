// Atomic operations of a warp on one value of global memory in the host world, with order and scope, and sums of
// register tiles.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/atomic.hpp>
#include <imbrex/hw/host/fragment.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>

namespace imbrex::hw {

// Replaces the value by change(value), and returns the old value.
template <memory_order Order, memory_scope Among, class T, class Change>
T atomic_change(const warp& scope, T* address, const char* what, source here, Change change, bool reads = true) {
    const context c = enter(scope, what, here);
    if (!c) return T{};
    c.on->pause(*c.by);
    touch_atomic(c, address, sizeof(T), {Order, Among, reads, true}, what, here);
    return detail::atomic_update(address, T{}, [&](T old, T) { return change(old); });
}

template <memory_order Order, memory_scope Among, class T>
T atomic_load(const warp& scope, const T* address, source here) {
    const context c = enter(scope, "atomic load", here);
    if (!c) return T{};
    c.on->pause(*c.by);
    touch_atomic(c, address, sizeof(T), {Order, Among, true, false}, "atomic load", here);
    T value;
    __atomic_load(address, &value, __ATOMIC_ACQUIRE);
    return value;
}
template <memory_order Order, memory_scope Among, class T>
void atomic_store(const warp& scope, T* address, T value, source here) {
    atomic_change<Order, Among>(
        scope, address, "atomic store", here, [=](T) { return value; }, false);
}
template <memory_order Order, memory_scope Among, class T>
T atomic_fetch_add(const warp& scope, T* address, T value, source here) {
    return atomic_change<Order, Among>(scope, address, "atomic add", here,
                                       [=](T old) { return static_cast<T>(old + value); });
}
template <memory_order Order, memory_scope Among, class T>
T atomic_fetch_max(const warp& scope, T* address, T value, source here) {
    return atomic_change<Order, Among>(scope, address, "atomic max", here, [=](T old) { return std::max(old, value); });
}
template <memory_order Order, memory_scope Among, class T>
T atomic_exchange(const warp& scope, T* address, T value, source here) {
    return atomic_change<Order, Among>(scope, address, "atomic exchange", here, [=](T) { return value; });
}
template <memory_order Order, memory_scope Among, class T>
T atomic_compare_exchange(const warp& scope, T* address, T expected, T value, source here) {
    return atomic_change<Order, Among>(scope, address, "atomic compare-exchange", here,
                                       [=](T old) { return old == expected ? value : old; });
}

template <memory_order Order, memory_scope Among, class T, class Ready>
T wait_for_value(const warp& scope, const T* address, const Ready& ready, source here) {
    const context c = enter(scope, "wait for a value", here);
    if (!c) return T{};
    c.on->pause(*c.by);
    T value{};
    c.on->wait_for_memory(
        *c.by,
        [&] {
            __atomic_load(address, &value, __ATOMIC_ACQUIRE);
            return ready(value);
        },
        here);
    touch_atomic(c, address, sizeof(T), {Order, Among, true, false}, "wait for a value", here);
    return value;
}

template <class Scope, class T, int Rows, int Columns, int Warps>
void add_global(const Scope& scope, const global_tile<T>& to, const fragment<T, Rows, Columns, Warps>& from,
                source here) {
    const context c = enter(scope, "atomic add to global memory", here);
    if (!c) return;
    touch_fragment(c, from, use::read, "atomic add to global memory", here);
    touch_global_tile(c, to, Rows, Columns, global_use::atomic_update, 0, "atomic add to global memory", here);
    for (int row = 0; row < std::min(Rows, to.rows); ++row) {
        for (int column = 0; column < std::min(Columns, to.columns); ++column) {
            detail::atomic_add(to.at(row, column), from.at(row, column));
        }
    }
    spend_lanes(c, Rows * Columns, "store");
}

// One element, by a function that an operation calls: an access of the running scope.
template <class T>
void add_global_element(T* address, T value, source here) {
    const context c{machine::running(), machine::running_simulated_warp()};
    if (c.by != nullptr && !c.on->stopping() && !c.on->unwinding()) {
        touch_global_values(c, address, 1, global_use::atomic_update, 0, "atomic add to one element", here);
    }
    detail::atomic_add(address, value);
}

template <class T>
T get_global(const warp& scope, const T* from, source here) {
    const context c = enter(scope, "load of one global value", here);
    if (!c) return T{};
    touch_global_values(c, from, 1, global_use::read, 0, "load of one global value", here);
    return *from;
}

}  // namespace imbrex::hw
