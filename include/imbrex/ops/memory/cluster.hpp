// The shared memory of the other blocks of a cluster. What a block writes for another to read goes: write, `fence_cluster`, arrive
// at a barrier of the other; and there: wait, `fence_cluster`, `load_from_block`. The other block must not end before it is read.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/cluster.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// The tile, or part of one, at the same place in block `cluster_rank`.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
IMBREX_KERNEL void load_from_block(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to, const Shared& from,
                                   int cluster_rank, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::load_shared_of(scope, to, from, cluster_rank, here);
}

template <class Scope>
IMBREX_KERNEL void fence_cluster(const Scope& scope, source here = source::current()) {
    hw::fence_cluster(scope, here);
}

}  // namespace imbrex
