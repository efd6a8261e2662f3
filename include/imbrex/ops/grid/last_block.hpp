// Work that several warps of a grid have parts of, and that the last of them to come puts together: nobody waits. Each writes its
// part to global memory and then comes; the last one sees what all have written.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/atomic.hpp>
#include <imbrex/hw/scalar.hpp>
#include <imbrex/hw/scope.hpp>

namespace imbrex {

// True in the last of so many warps. The counter is zero before the first comes and zero again when all have, so that a captured
// graph can be replayed.
IMBREX_KERNEL bool is_last_to_arrive(const warp& scope, int* counter, int warps, source here = source::current()) {
    if (hw::fetch_increment_acq_rel(scope, counter, here) != warps - 1) return false;
    hw::put_global(scope, counter, 0, here);
    return true;
}

}  // namespace imbrex
