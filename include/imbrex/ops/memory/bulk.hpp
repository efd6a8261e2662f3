// Bulk copies (cp.async.bulk) of a contiguous object, such as a packed tile, a vector or a struct of these, from global
// memory by TMA. They need no descriptor, so they are cheaper to issue than a tensor copy. One warp issues the copy; it
// completes on an mbarrier, and a wait for the barrier makes the data readable. A bulk reduce-add sends a fragment buffer
// the other way; it is committed and waited for like a TMA store (ops/memory/tma.hpp).
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/fragment_buffer.hpp>

#include <type_traits>

namespace imbrex {

template <class T>
IMBREX_KERNEL void load_object_async(const warp& scope, T& to, const T& from, transaction_barrier& landing,
                                     source here = source::current()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: TMA moves plain objects in chunks of 16 bytes, from and to multiples of 16");
    hw::bulk_load(scope, to, from, landing.word, here);
}

// Into a stage that the producer of a pipeline has acquired.
template <class T, class Slot>
requires requires(const Slot& slot) {
    slot.barrier();
}
IMBREX_KERNEL void load_object_async(const warp& scope, T& to, const T& from, const Slot& slot,
                                     source here = source::current()) {
    load_object_async(scope, to, from, slot.barrier(), here);
}

// Adds the buffer to the one in global memory (cp.reduce.async.bulk). The sum of floats depends on the order of the
// additions. With summation_order::fixed the kernel orders them by synchronisation, so that the sum is the same in every
// run, and the checker reports additions that are not ordered as it reports ordinary writes.
template <summation_order Order = summation_order::any, class Scope, int Rows, int Columns>
IMBREX_KERNEL void reduce_add_async(const Scope& scope, fragment_buffer<float, Rows, Columns>& to,
                                    const fragment_buffer<float, Rows, Columns>& from,
                                    source here = source::current()) {
    hw::bulk_reduce_add<Order>(scope, to, from, here);
}

}  // namespace imbrex
