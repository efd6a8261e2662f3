// Atomic operations on global memory in the host world, where blocks run on several threads.
#pragma once

#include <imbrex/core/numeric.hpp>

#include <atomic>
#include <mutex>
#include <type_traits>

namespace imbrex::hw {

// Replaces the value by op(value, other) in one step, and returns what it was.
template <class T, class Op>
T atomic_update(T* address, T other, Op op) {
    if constexpr (sizeof(T) >= 4) {
        std::atomic_ref<T> value(*address);
        T old = value.load(std::memory_order_relaxed);
        while (!value.compare_exchange_weak(old, op(old, other), std::memory_order_acq_rel)) {}
        return old;
    } else {
        // Types narrower than the processor's atomics take turns at one lock.
        static std::mutex turn;
        const std::lock_guard<std::mutex> hold(turn);
        const T old = *address;
        *address = op(old, other);
        return old;
    }
}

template <class T>
T atomic_add(T* address, T value) {
    return atomic_update(address, value, [](T a, T b) {
        if constexpr (std::is_arithmetic_v<T>) {
            return static_cast<T>(a + b);
        } else {
            return convert<T>(convert<float>(a) + convert<float>(b));
        }
    });
}

template <class T>
T atomic_max(T* address, T value) {
    return atomic_update(address, value, [](T a, T b) { return a < b ? b : a; });
}

// What this scope wrote to global memory is seen by whoever sees its later atomics.
template <class Scope>
void fence_global(const Scope&) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace imbrex::hw
