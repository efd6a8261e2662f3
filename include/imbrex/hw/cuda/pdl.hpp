// PDL (programmatic dependent launch) on the device: a kernel that `uses_pdl` (hw/kernel_traits.hpp) starts when all
// blocks of its predecessor have called launch_dependents or ended and resources are free. Before sm_90 kernels do not
// overlap, and these functions do nothing.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Waits until the preceding kernels have ended and their writes are visible. Without a PDL launch it returns at once.
template <class Scope>
IMBREX_KERNEL void pdl_wait(const Scope&, source = source::current()) {
    if constexpr (has_tma) asm volatile("griddepcontrol.wait;" : : : "memory");
}

// The next kernel may start. It still needs to wait before it reads what this one writes.
template <class Scope>
IMBREX_KERNEL void pdl_launch_dependents(const Scope&, source = source::current()) {
    if constexpr (has_tma) asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

}  // namespace imbrex::hw
