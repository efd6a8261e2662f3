// PDL (programmatic dependent launch): kernels of one stream that overlap. A kernel with `uses_pdl` may start before
// its predecessor in the stream has ended. It does the work that does not depend on the predecessor, then calls
// pdl_wait. A kernel calls pdl_launch_dependents when its successor may start.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/sync.hpp>

namespace imbrex {

// griddepcontrol.wait: waits until the preceding kernel has ended and its writes are visible. Kernels before that one have
// ended only if it waited for them, too.
template <class Scope>
IMBREX_KERNEL void pdl_wait(const Scope& scope, source here = source::current()) {
    hw::pdl_wait(scope, here);
}

// griddepcontrol.launch_dependents: the next kernel may start. It still needs pdl_wait before it reads what this one
// writes.
template <class Scope>
IMBREX_KERNEL void pdl_launch_dependents(const Scope& scope, source here = source::current()) {
    hw::pdl_launch_dependents(scope, here);
}

}  // namespace imbrex
