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

// The fence of a release or an acquire: it goes before or after a relaxed operation.
template <memory_scope Among>
IMBREX_KERNEL void fence_acq_rel() {
    if constexpr (Among == memory_scope::block) {
        asm volatile("fence.acq_rel.cta;" : : : "memory");
    } else if constexpr (Among == memory_scope::cluster) {
        asm volatile("fence.acq_rel.cluster;" : : : "memory");
    } else {
        asm volatile("fence.acq_rel.gpu;" : : : "memory");
    }
}

// Lane 0 calls `operate`; all lanes get its result. The operation itself is relaxed and atomic for the whole device.
template <memory_order Order, memory_scope Among, class Operate>
IMBREX_KERNEL auto by_one_lane(const Operate& operate) {
    if constexpr (releases(Order)) __syncwarp();
    decltype(operate()) value{};
    if (lane() == 0) {
        if constexpr (releases(Order)) fence_acq_rel<Among>();
        value = operate();
        if constexpr (acquires(Order)) fence_acq_rel<Among>();
    }
    value = __shfl_sync(all_lanes, value, 0);
    if constexpr (acquires(Order)) __syncwarp();
    return value;
}

template <class T>
IMBREX_KERNEL T load_relaxed(const T* address) {
    T value;
    __nv_atomic_load(const_cast<T*>(address), &value, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
    return value;
}

template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_load(const warp&, const T* address, source) {
    return by_one_lane<Order, Among>([&] { return load_relaxed(address); });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL void atomic_store(const warp&, T* address, T value, source) {
    if constexpr (releases(Order)) __syncwarp();
    if (lane() == 0) {
        if constexpr (releases(Order)) fence_acq_rel<Among>();
        __nv_atomic_store(address, &value, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
    }
    __syncwarp();
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_fetch_add(const warp&, T* address, T value, source) {
    return by_one_lane<Order, Among>(
        [&] { return __nv_atomic_fetch_add(address, value, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE); });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_fetch_max(const warp&, T* address, T value, source) {
    return by_one_lane<Order, Among>(
        [&] { return __nv_atomic_fetch_max(address, value, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE); });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_exchange(const warp&, T* address, T value, source) {
    return by_one_lane<Order, Among>([&] {
        T old;
        __nv_atomic_exchange(address, &value, &old, __NV_ATOMIC_RELAXED, __NV_THREAD_SCOPE_DEVICE);
        return old;
    });
}
template <memory_order Order, memory_scope Among, class T>
IMBREX_KERNEL T atomic_compare_exchange(const warp&, T* address, T expected, T value, source) {
    return by_one_lane<Order, Among>([&] {
        T old = expected;
        __nv_atomic_compare_exchange(address, &old, &value, false, __NV_ATOMIC_RELAXED, __NV_ATOMIC_RELAXED,
                                     __NV_THREAD_SCOPE_DEVICE);
        return old;
    });
}

template <memory_order Order, memory_scope Among, class T, class Ready>
IMBREX_KERNEL T wait_for_value(const warp&, const T* address, const Ready& ready, source) {
    return by_one_lane<Order, Among>([&] {
        T value = load_relaxed(address);
        while (!ready(value)) value = load_relaxed(address);
        return value;
    });
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

// The calling thread adds to one element.
template <class T>
IMBREX_KERNEL void add_global_element(T* address, T value, source) {
    atomicAdd(address, value);
}

// Every lane reads one value.
template <class T>
IMBREX_KERNEL T get_global(const warp&, const T* from, source) {
    return *static_cast<const volatile T*>(from);
}

}  // namespace imbrex::hw
