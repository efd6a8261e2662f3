// Atomic updates of global or shared memory, by each thread that calls them; they return what was there before and
// order nothing else. Fences order: fence_global before a flag is raised, and after it was seen.
#pragma once

#include <imbrex/core/config.hpp>

namespace imbrex::hw {

IMBREX_KERNEL int atomic_add(int* address, int value) {
    return atomicAdd(address, value);
}
// What this thread, or one that it has met, wrote before is seen by whoever adds later; and what those wrote who added before is
// seen by it.
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
// Floats of either sign order as their bits do: positive ones as signed integers, negative ones the other way round as
// unsigned ones.
IMBREX_KERNEL float atomic_max(float* address, float value) {
    if (__float_as_int(value) >= 0) {
        return __int_as_float(atomicMax(reinterpret_cast<int*>(address), __float_as_int(value)));
    }
    return __uint_as_float(atomicMin(reinterpret_cast<unsigned*>(address), __float_as_uint(value)));
}

// What this thread wrote before is seen by the whole device before what it writes after.
template <class Scope>
IMBREX_KERNEL void fence_global(const Scope&) {
    __threadfence();
}

}  // namespace imbrex::hw
