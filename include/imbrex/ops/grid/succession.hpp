// Kernels of one stream that overlap. One with `begins_early` may be started before the kernel before it has ended, and does what
// depends on nothing of that one; then it waits. A kernel allows the next one to begin when that would not be in its way.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/succession.hpp>

namespace imbrex {

// Until the kernels before this one are done and what they wrote is seen.
template <class Scope>
IMBREX_KERNEL void wait_for_kernel_before(const Scope& scope, source here = source::current()) {
    hw::wait_for_kernel_before(scope, here);
}

// The next kernel may begin. It still waits for the end of this one before it reads what this one writes.
template <class Scope>
IMBREX_KERNEL void allow_next_kernel(const Scope& scope, source here = source::current()) {
    hw::allow_next_kernel(scope, here);
}

}  // namespace imbrex
