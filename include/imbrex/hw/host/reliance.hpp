// Sites that another access makes necessary: a wait for written stores matters only if the kernel accesses what was
// written, the scope of an atomic operation only if another block uses the address, the place of a launch of dependents
// only if the next kernel relies on it before its pdl_wait. Elsewhere their mutations would be equivalent to the kernel as
// written: a kernel's end completes its stores, and a kernel without such accesses may start at any time. So these sites
// are listed when an access relies on them, and not when they are passed.
#pragma once

#include <imbrex/hw/host/machine.hpp>

namespace imbrex::hw {

// An access to global memory was ordered after an earlier one.
inline void list_relied_on(machine& m, const access& earlier, const simulated_warp& now) {
    if (m.options.sites == nullptr) return;
    const kernel_state &own = *now.block->cluster->kernel, &other = *earlier.by->block->cluster->kernel;
    if (&own == &other && earlier.actor == earlier.by->written.actor) {
        for (const completed_wait& wait : earlier.by->written_waits) {
            if (wait.tick < earlier.tick) continue;
            add_site(*m.options.sites,
                     {synchronisation::store_write, wait.where.file, wait.where.line, earlier.by->role});
            break;
        }
    }
    const bool waited = !own.overlaps || now.knows.grid.knows_complete(own.number - 1);
    if (&own == &other || waited || own.known_before_launch.knows_complete(other.number)) return;
    for (const synchronisation_site& site : own.started_by) add_site(*m.options.sites, site);
}

// Two blocks have operated on one address.
inline void list_scopes_of(machine& m, const access& earlier, const access& made) {
    if (m.options.sites == nullptr) return;
    for (const access* one : {&earlier, &made}) {
        add_site(*m.options.sites, {synchronisation::atomic_scope, one->where.file, one->where.line, one->by->role});
    }
}

}  // namespace imbrex::hw
