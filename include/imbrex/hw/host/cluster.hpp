// DSMEM reads in the host world: the bytes at the same offset of another block's shared memory.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/tma.hpp>

namespace imbrex::hw {

// Loads the tile, or subtile, at this address in block `cluster_rank` into registers.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
void load_dsmem(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const Shared& from, int cluster_rank,
                source here = source::current()) {
    const char* what = "load from another block's shared memory";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    auto part = part_of(from);
    part.tile = &in_cluster(c, *part.tile, cluster_rank, what, here);
    remember_remote_use(c, *c.by->block->cluster->blocks[cluster_rank], what, here);
    load_shared(scope, to, part, here);
}

// Goes between writes to shared memory and the arrival at another block's barrier, and between the wait for such an
// arrival and the reads.
template <class Scope>
void fence_cluster(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "cluster fence", here);
    if (!c.checked()) return;
    if (c.on->pass_site(*c.by, synchronisation::cluster_fence, here) == mutation_operator::skip) return;
    fence_for_cluster(*c.on, *c.by);
}

}  // namespace imbrex::hw
