// TMA copies between tensors in global memory and shared tiles. One warp issues a load (cp.async.bulk.tensor); it
// completes on an mbarrier, and a wait for the barrier makes the tile readable. TMA multicast (load_multicast) writes a
// tile to several blocks of a thread block cluster. One scope issues stores and reductions, in groups as with cp.async.
// The writers of the tile must call `fence_async`, the proxy fence, and sync before the store; the tile must not be
// overwritten until the store has been waited for.
#pragma once

#include <imbrex/core/source.hpp>
#include <imbrex/hw/memory.hpp>
#include <imbrex/tile/barrier.hpp>
#include <imbrex/tile/tma_tensor.hpp>

#include <type_traits>

namespace imbrex {

// Whether a tensor of Tile can be copied to and from Shared: the same tile type, or a subtile of a larger tile with the
// same shape and swizzle.
template <class Shared, class Tile>
constexpr IMBREX_FN bool fits_tile() {
    return Shared::rows == Tile::rows && Shared::columns == Tile::columns &&
           Shared::layout::panel_columns == Tile::layout::panel_columns;
}

// Prefetches the tensor's descriptor, so that the first copy does not wait for it.
template <class Scope, class Tile, int Rank>
IMBREX_KERNEL void prefetch_descriptor(const Scope& scope, const tma_tensor<Tile, Rank>& one) {
    hw::prefetch_map(scope, one);
}

template <class Shared, class Tile, int Rank>
IMBREX_KERNEL void load_async(const warp& scope, Shared&& to, const tma_tensor_tile<tma_tensor<Tile, Rank>>& from,
                              transaction_barrier& landing, source here = source::current()) {
    static_assert(fits_tile<std::remove_cvref_t<Shared>, Tile>(),
                  "imbrex: a TMA copy needs a shared tile of the tensor's tile type");
    hw::tma_load(scope, to, *from.of, from.where, landing.word, here);
}

// Into a stage that the producer of a pipeline has acquired.
template <class Shared, class Tile, int Rank, class Slot>
requires requires(const Slot& slot) {
    slot.barrier();
}
IMBREX_KERNEL void load_async(const warp& scope, Shared&& to, const tma_tensor_tile<tma_tensor<Tile, Rank>>& from,
                              const Slot& slot, source here = source::current()) {
    static_assert(fits_tile<std::remove_cvref_t<Shared>, Tile>(),
                  "imbrex: a TMA copy needs a shared tile of the tensor's tile type");
    hw::tma_load(scope, to, *from.of, from.where, slot.barrier().word, here);
}

// Rows of such a stage from `row` on, a multiple of 8. The tensor's copied_rows sets the number of rows.
template <class Tile, int Rank, class Slot>
requires requires(const Slot& slot) {
    slot.barrier();
}
IMBREX_KERNEL void load_rows_async(const warp& scope, Tile& to, int row,
                                   const tma_tensor_tile<tma_tensor<Tile, Rank>>& from, const Slot& slot,
                                   source here = source::current()) {
    hw::tma_load_rows(scope, to, row, *from.of, from.where, slot.barrier().word, here);
}

// TMA multicast: into the same shared address of every block of the cluster whose bit is set in `blocks`.
template <class Shared, class Tile, int Rank, class Slot>
requires requires(const Slot& slot) {
    slot.barrier();
}
IMBREX_KERNEL void load_multicast(const warp& scope, Shared&& to, const tma_tensor_tile<tma_tensor<Tile, Rank>>& from,
                                  const Slot& slot, unsigned blocks, source here = source::current()) {
    static_assert(fits_tile<std::remove_cvref_t<Shared>, Tile>(),
                  "imbrex: a TMA copy needs a shared tile of the tensor's tile type");
    hw::tma_load_multicast(scope, to, *from.of, from.where, slot.barrier().word, blocks, here);
}

template <class Scope, class Tile, int Rank, class Shared>
IMBREX_KERNEL void store_async(const Scope& scope, const tma_tensor_tile<tma_tensor<Tile, Rank>>& to,
                               const Shared& from, source here = source::current()) {
    static_assert(fits_tile<Shared, Tile>(), "imbrex: a TMA copy needs a shared tile of the tensor's tile type");
    hw::tma_store(scope, *to.of, to.where, from, here);
}

// Adds the tile to global memory (cp.reduce.async.bulk).
template <class Scope, class Tile, int Rank, class Shared>
IMBREX_KERNEL void reduce_add_async(const Scope& scope, const tma_tensor_tile<tma_tensor<Tile, Rank>>& to,
                                    const Shared& from, source here = source::current()) {
    static_assert(fits_tile<Shared, Tile>(), "imbrex: a TMA copy needs a shared tile of the tensor's tile type");
    hw::tma_reduce_add(scope, *to.of, to.where, from, here);
}

template <class Scope>
IMBREX_KERNEL void commit_stores(const Scope& scope, source here = source::current()) {
    hw::bulk_commit(scope, here);
}

// Waits until all but the newest Left groups have read their shared tiles, which may then be overwritten.
template <int Left = 0, class Scope>
IMBREX_KERNEL void wait_stores_read(const Scope& scope, source here = source::current()) {
    hw::bulk_wait_read<Left>(scope, here);
}

// Waits until they have also written global memory.
template <int Left = 0, class Scope>
IMBREX_KERNEL void wait_stores(const Scope& scope, source here = source::current()) {
    hw::bulk_wait<Left>(scope, here);
}

}  // namespace imbrex
