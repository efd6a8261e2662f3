// PDL (programmatic dependent launch) in the host world: each kernel ends before the next begins. In checked mode the
// next kernel is ordered after this one only by pdl_wait (hw/host/stream.hpp).
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <utility>

namespace imbrex::hw {

template <class Scope>
void pdl_wait(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "PDL wait", here);
    if (!c.checked()) return;
    c.on->pause(*c.by);
    kernel_state& kernel = c.on->kernel;
    if (!kernel.overlaps) return;
    if (c.on->pass_site(*c.by, synchronisation::pdl_wait, here) == mutation_operator::skip) return;
    c.by->knows.grid.join(kernel.complete_after_wait);
    kernel.known_at_end.join(kernel.complete_after_wait);
}

// The next kernel may start when every block has called this or has ended.
inline void allow_dependents(simulated_warp& one) {
    if (std::exchange(one.block->dependents_launched, true)) return;
    one.knows.seen.set(one.actor, one.tick);
    one.block->cluster->at_launch.join(one.knows);
}

template <class Scope>
void pdl_launch_dependents(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "PDL launch of dependents", here);
    if (!c.checked()) return;
    c.on->pause(*c.by);
    if (c.on->options.sites != nullptr && !c.by->block->dependents_launched) {
        add_site(c.on->kernel.launches, {synchronisation::pdl_launch, here.file, here.line, c.by->role});
    }
    if (c.on->operator_at(*c.by, synchronisation::pdl_launch, here) == mutation_operator::at_start) {
        c.by->block->dependents_launched = true;
        c.by->block->cluster->at_launch.grid.join(c.on->kernel.known_at_start);
    }
    allow_dependents(*c.by);
}

}  // namespace imbrex::hw
