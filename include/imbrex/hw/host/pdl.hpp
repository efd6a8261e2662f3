// PDL (programmatic dependent launch) in the host world: each kernel ends before the next begins.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/scope.hpp>

namespace imbrex::hw {

template <class Scope>
void pdl_wait(const Scope& scope, source here = source::current()) {
    enter(scope, "PDL wait", here);
}

template <class Scope>
void pdl_launch_dependents(const Scope& scope, source here = source::current()) {
    enter(scope, "PDL launch of dependents", here);
}

}  // namespace imbrex::hw
