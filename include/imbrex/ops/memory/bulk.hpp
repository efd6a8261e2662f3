// A contiguous object (a packed tile, a vector, a struct of such) from global memory by TMA: quicker to ask for
// than a tile of a tensor, since there is no descriptor, and moved as it stands. It is asked for by one warp and lands on
// a barrier; whoever waits for the barrier may read.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/bulk.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/tile/barrier.hpp>

#include <type_traits>

namespace imbrex {

template <class T>
IMBREX_KERNEL void load_object_async(const warp& scope, T& to, const T& from, transaction_barrier& landing,
                                     source here = source::current()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: TMA moves plain objects in chunks of 16 bytes, from and to multiples of 16");
    hw::bulk_load(scope, to, from, landing.word, here);
}

// Into a stage that a pipeline's producer has acquired.
template <class T, class Slot>
requires requires(const Slot& slot) {
    slot.barrier();
}
IMBREX_KERNEL void load_object_async(const warp& scope, T& to, const T& from, const Slot& slot,
                                     source here = source::current()) {
    load_object_async(scope, to, from, slot.barrier(), here);
}

}  // namespace imbrex
