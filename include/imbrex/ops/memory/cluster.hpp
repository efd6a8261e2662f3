// DSMEM (distributed shared memory): the shared memory of the other blocks of a thread block cluster.
//
// Reading another block's memory: the writer writes, calls `fence_cluster` and arrives at a barrier of the reader. The
// reader waits, calls `fence_cluster` and `dsmem_load`. The writer must not exit before the read has finished.
//
// Pushing registers has a lower latency: the sender calls `dsmem_store_async`. The receiver calls `expect` for the
// bytes, before or after they arrive, then waits, and calls `fence_cluster` and `load_dsmem_buffer`. Before the sender
// reuses the DSMEM buffer, the receiver must arrive at a barrier of the sender. If the buffer's memory was written
// otherwise, `fence_async` precedes that arrival.
//
// A tile of shared memory is pushed by `copy_to_block_async`, a bulk copy (TMA). Its receiver also calls `expect` and
// waits, and needs no fence. The wait also shows that the sender's tile has been read: the receiver's arrival at a
// barrier of the sender then frees both tiles.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/dsmem_buffer.hpp>
#include <imbrex/tile/register_tile.hpp>

#include <type_traits>

namespace imbrex {

// Loads the tile, or subtile, at the same address in block `cluster_rank`.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
IMBREX_KERNEL void dsmem_load(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to, const Shared& from,
                              int cluster_rank, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::load_dsmem(scope, to, from, cluster_rank, here);
}

// Stores the tile into the DSMEM buffer at this address in block `cluster_rank`. It completes on the barrier there.
template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void dsmem_store_async(const Scope& scope, dsmem_buffer<T, Rows, Columns>& to,
                                     const hw::fragment<T, Rows, Columns, Warps>& from, transaction_barrier& landing,
                                     int cluster_rank, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::dsmem_store(scope, to, from, landing.word, cluster_rank, here);
}
// Reads the data that has landed in this block's buffer.
template <class Scope, class T, int Rows, int Columns, int Warps>
IMBREX_KERNEL void load_dsmem_buffer(const Scope& scope, hw::fragment<T, Rows, Columns, Warps>& to,
                                     const dsmem_buffer<T, Rows, Columns>& from, source here = source::current()) {
    require_scope<Scope, hw::fragment<T, Rows, Columns, Warps>>();
    hw::read_dsmem_buffer(scope, to, from, here);
}

// Copies an object of shared memory, such as a tile, to the one at the address of `to` in block `cluster_rank`. It
// completes on the barrier there.
template <class Scope, class T>
IMBREX_KERNEL void copy_to_block_async(const Scope& scope, T& to, const T& from, transaction_barrier& landing,
                                       int cluster_rank, source here = source::current()) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 16 == 0 && alignof(T) >= 16,
                  "imbrex: TMA moves plain objects in chunks of 16 bytes, from and to multiples of 16");
    hw::copy_to_block(scope, to, from, landing.word, cluster_rank, here);
}

template <class Scope>
IMBREX_KERNEL void fence_cluster(const Scope& scope, source here = source::current()) {
    hw::fence_cluster(scope, here);
}

}  // namespace imbrex
