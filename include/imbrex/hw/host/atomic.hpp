// Atomic updates of one value by the calling OS thread of the host world, where blocks run on several. Only operations of
// hw/host call them, once per operation: atomic_value.hpp (ops/memory/atomic.hpp, the atomics of kernels), scalar.hpp
// (counters) and tma.hpp (TMA reductions). The checker does not see them: an operation reports its access itself. They use
// compiler builtins: <atomic> and <mutex> would cost nvcc half a second per file.
#pragma once

#include <imbrex/core/element_types.hpp>

#include <cstdint>
#include <type_traits>

namespace imbrex::hw::detail {

// Replaces the value by op(value, other) atomically, and returns the old value.
template <class T, class Op>
T atomic_update(T* address, T other, Op op) {
    static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8),
                  "imbrex: atomic operations take values of 2, 4 or 8 bytes");
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    T wanted = op(old, other);
    while (!__atomic_compare_exchange(address, &old, &wanted, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        wanted = op(old, other);
    }
    return old;
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

}  // namespace imbrex::hw::detail
