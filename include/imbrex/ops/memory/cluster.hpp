// The shared memory of the other blocks of a cluster. What a block writes for another to read goes: write, `fence_cluster`, arrive
// at a barrier of the other; and there: wait, `fence_cluster`, `dsmem_load`. The other block must not end before it is read.
//
// What is sent out of registers is there sooner: `dsmem_store_async`; and there: `expect` of its bytes, before they come or after, wait,
// `fence_cluster`, `load_dsmem_buffer`. Into the same DSMEM buffer more can be sent when the sender has been told that it was taken, by arrivals at a
// barrier of its own; where the place was written to otherwise, `fence_async` comes before them.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/cluster.hpp>
#include <imbrex/hw/dsmem.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/dsmem_buffer.hpp>
#include <imbrex/tile/register_tile.hpp>

namespace imbrex {

// The tile, or part of one, at the same place in block `cluster_rank`.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
IMBREX_KERNEL void dsmem_load(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to, const Shared& from,
                              int cluster_rank, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::load_dsmem(scope, to, from, cluster_rank, here);
}

// The tile into the DSMEM buffer at this place in block `cluster_rank`, where it lands on the barrier.
template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void dsmem_store_async(const Scope& scope, dsmem_buffer<T, Rows, Columns>& to,
                                     const hw::fragment<T, Rows, Columns, Warps>& from, transaction_barrier& landing,
                                     int cluster_rank, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::dsmem_store(scope, to, from, landing.word, cluster_rank, here);
}
// What has landed in this block's own.
template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void load_dsmem_buffer(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to,
                                     const dsmem_buffer<T, Rows, Columns>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::read_dsmem_buffer(scope, to, from, here);
}

template <class Scope>
IMBREX_KERNEL void fence_cluster(const Scope& scope, source here = source::current()) {
    hw::fence_cluster(scope, here);
}

}  // namespace imbrex
