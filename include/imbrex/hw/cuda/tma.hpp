// TMA: bulk tensor copies (cp.async.bulk.tensor) between a tensor in global memory and a shared tile, TMA multicast,
// and reductions. One lane issues them, always the same. A tile of several panels takes one copy per panel. The
// out-of-bounds part of a tensor is read as zero, counted as read, and not written.
//
// A view is any type with a member `map`, the encoded tensor_map, and a constant `rank`. Its box must be one panel of
// the tile: layout::panel_columns x rows. It must be in kernel arguments or global memory.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/tensor_map.hpp>

#include <cuda/ptx>

namespace imbrex::hw {

// The thread that issues TMA operations of a scope: an elected lane of a warp. With several warps it is the first
// thread, not an elected one: if an election depends on a warp-uniform value that is not known to be uniform, the
// compiler assumes divergence afterwards and uses no uniform registers.
template <class Scope>
IMBREX_KERNEL bool issues(const Scope& scope) {
    if constexpr (Scope::warps == 1) {
        return elected(scope);
    } else {
        return scope.rank() == 0 && lane() == 0;
    }
}

// Calls f(coordinates, first element in shared memory) for each panel, in the elected lane.
template <class Scope, class Shared, class View, class F>
IMBREX_KERNEL void each_panel(const Scope& scope, Shared& tile, const View&, const tma_coordinate& coordinate, F&& f) {
    using layout = layout_of<std::remove_const_t<Shared>>;
    static_assert(has_tma, "imbrex: bulk tensor copies need sm_90 or later");
    static_assert(View::rank >= 2 && View::rank <= 5, "imbrex: a bulk tensor copy has 2 to 5 dimensions");
    static_assert(Shared::rows <= 256, "imbrex: a bulk tensor copy has at most 256 rows; copy the tile in parts");
    static_assert(layout::panel_columns <= 256, "imbrex: a bulk tensor copy has at most 256 columns in a panel");
    static_assert(Shared::columns % layout::panel_columns == 0,
                  "imbrex: a part copied in bulk must be as wide as whole panels of its tile");
    if (!issues(scope)) return;
#pragma unroll
    for (int panel = 0; panel < Shared::columns / layout::panel_columns; ++panel) {
        std::int32_t at[View::rank];
#pragma unroll
        for (int i = 0; i < View::rank; ++i) at[i] = coordinate.at[i];
        at[0] += panel * layout::panel_columns;
        f(at, tile.at(0, panel * layout::panel_columns));
    }
}

// The state space of a load's destination. For shared::cluster, ptxas emits a function call on sm_120.
using load_space = std::conditional_t<(architecture < 1000), cuda::ptx::space_cluster_t, cuda::ptx::space_shared_t>;

// A load with an evict-first L2 cache policy. (The library we use has no wrapper for it.)
template <int Rank>
IMBREX_KERNEL void load_evict_first(void* to, const tensor_map& map, const std::int32_t (&at)[Rank],
                                    barrier_word& barrier) {
    constexpr std::uint64_t evict_first = 0x12f0000000000000;
    static_assert(Rank == 2, "imbrex: evict_first is for two-dimensional tensors");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1, {%2, %3}], [%4], %5;"
        :
        : "r"(shared_address(to)), "l"(&map), "r"(at[0]), "r"(at[1]), "r"(shared_address(&barrier)), "l"(evict_first)
        : "memory");
}

template <class Warp, class Shared, class View>
IMBREX_KERNEL void tma_load(const Warp& scope, Shared&& to, const View& view, const tma_coordinate& coordinate,
                            barrier_word& barrier, source = source::current()) {
    static_assert(Warp::warps == 1, "imbrex: a bulk load is issued by one warp");
    each_panel(scope, to, view, coordinate, [&](const auto& at, auto* panel) {
        if constexpr (has_wgmma && View::rank == 2) {
            if (coordinate.evict_first) return load_evict_first(panel, view.map, at, barrier);
        }
        cuda::ptx::cp_async_bulk_tensor(load_space{}, cuda::ptx::space_global, panel, &view.map, at, &barrier.word);
    });
}

// Rows of the tile from a row on where the swizzle pattern starts: as many as the view's box has.
template <class Warp, class Tile, class View>
IMBREX_KERNEL void tma_load_rows(const Warp& scope, Tile& to, int row, const View& view,
                                 const tma_coordinate& coordinate, barrier_word& barrier, source here) {
    tma_load(scope, to.template subtile<8>(row), view, coordinate, barrier, here);
}

// TMA multicast: into the same address of every block of the cluster whose bit is set; the barrier of each counts
// bytes.
template <class Warp, class Shared, class View>
IMBREX_KERNEL void tma_load_multicast(const Warp& scope, Shared&& to, const View& view,
                                      const tma_coordinate& coordinate, barrier_word& barrier, unsigned short mask,
                                      source = source::current()) {
    static_assert(has_multicast && Warp::warps == 1, "imbrex: multicast copies need sm_90a or sm_100a");
    each_panel(scope, to, view, coordinate, [&](const auto& at, auto* panel) {
        cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, panel, &view.map, at,
                                        &barrier.word, mask);
    });
}

// One thread of a scope of any size issues a store. The writers of the tile must have called async_fence and synced
// with this scope.
template <class Scope, class View, class Shared>
IMBREX_KERNEL void tma_store(const Scope& scope, const View& view, const tma_coordinate& coordinate, const Shared& from,
                             source = source::current()) {
    each_panel(scope, from, view, coordinate, [&](const auto& at, auto* panel) {
        cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, &view.map, at, panel);
    });
}

// Adds the tile to global memory, each element atomically.
template <class Scope, class View, class Shared>
IMBREX_KERNEL void tma_reduce_add(const Scope& scope, const View& view, const tma_coordinate& coordinate,
                                  const Shared& from, source = source::current()) {
    each_panel(scope, from, view, coordinate, [&](const auto& at, auto* panel) {
        cuda::ptx::cp_reduce_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, cuda::ptx::op_add,
                                               &view.map, at, panel);
    });
}

// Commits a group of stores. Groups belong to the issuing thread, which is always the same.
template <class Scope>
IMBREX_KERNEL void bulk_commit(const Scope& scope, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: bulk tensor copies need sm_90 or later");
    if (issues(scope)) cuda::ptx::cp_async_bulk_commit_group();
}

// Waits until all but Pending groups have read their shared memory, which may then be overwritten; or have completed.
// Only the issuing warp waits: a scope of several warps must sync before the others write.
template <int Pending, class Scope>
IMBREX_KERNEL void bulk_wait_read(const Scope& scope, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: bulk tensor copies need sm_90 or later");
    if (issues(scope)) cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<Pending>{});
    __syncwarp();
}
template <int Pending, class Scope>
IMBREX_KERNEL void bulk_wait(const Scope& scope, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: bulk tensor copies need sm_90 or later");
    if (issues(scope)) cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<Pending>{});
    __syncwarp();
}

// Prefetches the descriptor, so that the first copy does not wait for it.
template <class Scope, class View>
IMBREX_KERNEL void prefetch_map(const Scope& scope, const View& view, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: bulk tensor copies need sm_90 or later");
    if (elected(scope)) asm volatile("prefetch.tensormap [%0];" : : "l"(&view.map) : "memory");
}

}  // namespace imbrex::hw
