// Kernels of one stream that overlap: one that `uses_pdl` (hw/kernel_traits.hpp) is started as soon as all blocks of the
// one before it have allowed it, or are done, and there is room on the device. Before sm_90 none overlap: each waits for the one before
// it by itself, and there is nothing to do.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Until the kernels before this one are done and what they wrote is seen. It waits for nothing where the launch did.
template <class Scope>
IMBREX_KERNEL void pdl_wait(const Scope&, source = source::current()) {
    if constexpr (has_tma) asm volatile("griddepcontrol.wait;" : : : "memory");
}

// The next kernel may begin. It still waits for the end of this one before it reads what this one writes.
template <class Scope>
IMBREX_KERNEL void pdl_launch_dependents(const Scope&, source = source::current()) {
    if constexpr (has_tma) asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

}  // namespace imbrex::hw
