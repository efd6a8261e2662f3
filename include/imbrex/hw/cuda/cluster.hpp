// DSMEM reads on the device: the shared memory of the other blocks of a thread block cluster, at the same address as in
// this block, mapped by mapa.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/register_layout.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/copy_register.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

namespace imbrex::hw {

// Loads the tile, or subtile, at this address in block `cluster_rank` into registers.
template <class Scope, class T, int Rows, int Columns, int Warps, class Shared>
IMBREX_KERNEL void load_dsmem(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const Shared& from,
                              int cluster_rank, source = source::current()) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(has_tma && Scope::warps > 0, "imbrex: clusters of blocks need sm_90 or later");
    static_assert(fragment_type::run_bytes == 8, "imbrex: other blocks' tiles are of 32-bit elements");
    check_shared<fragment_type, Shared>(scope);
    __syncwarp();
#pragma unroll
    for (int block = 0; block < fragment_type::blocks; ++block) {
#pragma unroll
        for (int strip = 0; strip < fragment_type::strips; ++strip) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const T* place =
                    from.at(stored_row<fragment_type>(scope, block, half), stored_column<fragment_type>(strip));
                uint2 pair;
                asm volatile(
                    "{\n\t.reg .b32 remote;\n\t"
                    "mapa.shared::cluster.u32 remote, %2, %3;\n\t"
                    "ld.shared::cluster.v2.u32 {%0, %1}, [remote];\n\t}"
                    : "=r"(pair.x), "=r"(pair.y)
                    : "r"(shared_address(place)), "r"(cluster_rank)
                    : "memory");
                write_as(&to.values[block][strip][half * fragment_type::run], pair);
            }
        }
    }
}

// Goes between writes to shared memory and the arrival at another block's barrier, and between the wait for such an
// arrival and the reads. The barriers alone order accesses within one block.
template <class Scope>
IMBREX_KERNEL void fence_cluster(const Scope&, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: clusters of blocks need sm_90 or later");
    asm volatile("fence.acq_rel.cluster;" : : : "memory");
}

}  // namespace imbrex::hw
