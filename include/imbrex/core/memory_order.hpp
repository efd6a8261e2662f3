// Memory order and scope of atomic operations, with the meaning of the PTX memory model: which accesses an atomic
// operation orders, and for which threads.
#pragma once

namespace imbrex {

enum class memory_order {
    relaxed,  // atomic, orders nothing
    acquire,  // later accesses of this warp see what was published by the release that it reads
    release,  // publishes the earlier accesses of this warp
    acq_rel,  // both
};

constexpr bool acquires(memory_order order) {
    return order == memory_order::acquire || order == memory_order::acq_rel;
}
constexpr bool releases(memory_order order) {
    return order == memory_order::release || order == memory_order::acq_rel;
}

// The threads for which an atomic operation is atomic and ordered. Both sides must be in the scope of both operations.
enum class memory_scope { block, cluster, device };

// Whether the order in which floats are added to memory may differ between runs, or the kernel fixes it.
enum class summation_order { any, fixed };

}  // namespace imbrex
