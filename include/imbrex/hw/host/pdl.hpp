// Kernels of one stream that overlap. In the host world each ends before the next begins.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/scope.hpp>

namespace imbrex::hw {

template <class Scope>
void pdl_wait(const Scope& scope, source here = source::current()) {
    enter(scope, "wait for the kernel before", here);
}

template <class Scope>
void pdl_launch_dependents(const Scope& scope, source here = source::current()) {
    enter(scope, "start of the next kernel", here);
}

}  // namespace imbrex::hw
