// Shared memory of the other blocks of a cluster, in the host world: the bytes at the same place of the other block's memory.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/barrier.hpp>
#include <imbrex/hw/host/copy.hpp>
#include <imbrex/hw/host/tma.hpp>

namespace imbrex::hw {

// The tile, or part of one, that lies at this place in block `cluster_rank`, into registers.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
void load_dsmem(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const Shared& from, int cluster_rank,
                source here = source::current()) {
    const char* what = "load from another block's shared memory";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    auto part = part_of(from);
    part.tile = &in_cluster(c, *part.tile, cluster_rank, what, here);
    load_shared(scope, to, part, here);
}

// Between writes to shared memory and the arrival that tells another block of them; and between the wait for such an arrival
// and the reads. Here arrivals order everything.
template <class Scope>
void fence_cluster(const Scope&, source = source::current()) {}

}  // namespace imbrex::hw
