// Atomic operations of a warp on one value of global memory, with order and scope: lane 0 executes them. The warp syncs
// before a release and after an acquire, so that they order the accesses of all lanes. Also sums of register tiles.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/scope.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

template <memory_order Order>
inline constexpr int nv_order = Order == memory_order::relaxed   ? __NV_ATOMIC_RELAXED
                                : Order == memory_order::acquire ? __NV_ATOMIC_ACQUIRE
                                : Order == memory_order::release ? __NV_ATOMIC_RELEASE
                                                                 : __NV_ATOMIC_ACQ_REL;
template <memory_scope Among>
inline constexpr int nv_scope = Among == memory_scope::block     ? __NV_THREAD_SCOPE_BLOCK
                                : Among == memory_scope::cluster ? __NV_THREAD_SCOPE_CLUSTER
                                                                 : __NV_THREAD_SCOPE_DEVICE;

// Lane 0 calls `operate`; all lanes get its result.
template <memory_order Order, class T, class Operate>
IMBREX_KERNEL T by_one_lane(const Operate& operate) {
    if constexpr (releases(Order)) __syncwarp();
    T value{};
    if (lane() == 0) value = operate();
    value = __shfl_sync(all_lanes, value, 0);
    if constexpr (acquires(Order)) __syncwarp();
    return value;
}

template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_load(const warp&, const T* address, source) {
    return by_one_lane<Order, T>([&] {
        T value;
        __nv_atomic_load(const_cast<T*>(address), &value, nv_order<Order>, nv_scope<Among>);
        return value;
    });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL void atomic_store(const warp&, T* address, T value, source) {
    if constexpr (releases(Order)) __syncwarp();
    if (lane() == 0) __nv_atomic_store(address, &value, nv_order<Order>, nv_scope<Among>);
    __syncwarp();
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_fetch_add(const warp&, T* address, T value, source) {
    return by_one_lane<Order, T>(
        [&] { return __nv_atomic_fetch_add(address, value, nv_order<Order>, nv_scope<Among>); });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_fetch_max(const warp&, T* address, T value, source) {
    return by_one_lane<Order, T>(
        [&] { return __nv_atomic_fetch_max(address, value, nv_order<Order>, nv_scope<Among>); });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_exchange(const warp&, T* address, T value, source) {
    return by_one_lane<Order, T>([&] {
        T old;
        __nv_atomic_exchange(address, &value, &old, nv_order<Order>, nv_scope<Among>);
        return old;
    });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_compare_exchange(const warp&, T* address, T expected, T value, source) {
    constexpr int failure = acquires(Order) ? __NV_ATOMIC_ACQUIRE : __NV_ATOMIC_RELAXED;
    return by_one_lane<Order, T>([&] {
        T old = expected;
        __nv_atomic_compare_exchange(address, &old, &value, false, nv_order<Order>, failure, nv_scope<Among>);
        return old;
    });
}

template <memory_order Order, memory_scope Among, class T, class Ready>
IMBREX_KERNEL T wait_for_value(const warp& scope, const T* address, const Ready& ready, source here) {
    for (;;) {
        const T value = atomic_load<Order, Among>(scope, address, here);
        if (ready(value)) return value;
    }
}

template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void add_global(const Scope& scope, const global_tile<T>& to,
                              const fragment<T, Rows, Columns, Warps>& from, source here) {
    visit(
        scope, use::read, here,
        [&](int row, int column, const T& value) {
            if (to.has(row, column)) atomicAdd(to.at(row, column), value);
        },
        from);
}

// Every lane reads one value.
template <class T>
IMBREX_KERNEL T get_global(const warp&, const T* from, source) {
    return *static_cast<const volatile T*>(from);
}

}  // namespace imbrex::hw
