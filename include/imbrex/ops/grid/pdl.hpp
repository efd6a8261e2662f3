// Kernels of one stream that overlap. One with `uses_pdl` may be started before the kernel before it has ended, and does what
// depends on nothing of that one; then it waits. A kernel allows the next one to begin when that would not be in its way.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/pdl.hpp>

namespace imbrex {

// Until the kernels before this one are done and what they wrote is seen.
template <class Scope>
IMBREX_KERNEL void pdl_wait(const Scope& scope, source here = source::current()) {
    hw::pdl_wait(scope, here);
}

// The next kernel may begin. It still waits for the end of this one before it reads what this one writes.
template <class Scope>
IMBREX_KERNEL void pdl_launch_dependents(const Scope& scope, source here = source::current()) {
    hw::pdl_launch_dependents(scope, here);
}

}  // namespace imbrex
