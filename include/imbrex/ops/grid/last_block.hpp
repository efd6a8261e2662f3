// Last-block reduction (the threadFenceReduction pattern): each warp writes its partial result to global memory and
// increments a counter; the last one to arrive sees all results and combines them. No warp waits.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/math.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/hw/scope.hpp>

namespace imbrex {

// True in the last of `warps` warps. The counter must be zero before the first arrival and is zero again after the
// last, so a CUDA graph can be replayed.
IMBREX_KERNEL bool is_last_to_arrive(const warp& scope, int* counter, int warps, source here = source::current()) {
    if (hw::fetch_increment_acq_rel(scope, counter, here) != warps - 1) return false;
    hw::put_global(scope, counter, 0, here);
    return true;
}

}  // namespace imbrex
