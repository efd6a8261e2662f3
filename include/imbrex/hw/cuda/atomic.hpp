// Atomic updates of global or shared memory by each calling thread. They return the old value and are relaxed. Order
// comes from fences: fence_global before a flag is set and after it is seen.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex::hw {

IMBREX_KERNEL int atomic_add(int* address, int value) {
    return atomicAdd(address, value);
}
// Acquire-release: this thread's earlier writes are visible to later adders, and the writes of earlier adders to it.
IMBREX_KERNEL int atomic_add_acq_rel(int* address, int value) {
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;" : "=r"(before) : "l"(address), "r"(value) : "memory");
    return before;
}
IMBREX_KERNEL unsigned atomic_add(unsigned* address, unsigned value) {
    return atomicAdd(address, value);
}
IMBREX_KERNEL float atomic_add(float* address, float value) {
    return atomicAdd(address, value);
}

IMBREX_KERNEL int atomic_max(int* address, int value) {
    return atomicMax(address, value);
}
IMBREX_KERNEL unsigned atomic_max(unsigned* address, unsigned value) {
    return atomicMax(address, value);
}
// Floats order as their bits do: positive ones as signed integers, negative ones reversed, as unsigned ones.
IMBREX_KERNEL float atomic_max(float* address, float value) {
    if (__float_as_int(value) >= 0) {
        return __int_as_float(atomicMax(reinterpret_cast<int*>(address), __float_as_int(value)));
    }
    return __uint_as_float(atomicMin(reinterpret_cast<unsigned*>(address), __float_as_uint(value)));
}

// Makes this thread's earlier writes visible to the whole device before its later ones.
template <class Scope>
IMBREX_KERNEL void fence_global(const Scope&) {
    __threadfence();
}

}  // namespace imbrex::hw
