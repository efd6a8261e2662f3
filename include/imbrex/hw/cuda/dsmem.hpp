// DSMEM stores on the device: st.async writes registers to the shared memory of another block of the thread block
// cluster, 16 bytes per thread at a time. An mbarrier of that block counts the bytes, as for a bulk copy, so the sender
// needs neither a fence nor a wait. A bulk copy (cp.async.bulk) sends an object of this block's shared memory.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>
#include <imbrex/hw/cuda/tma.hpp>

#include <cstdint>

namespace imbrex::hw {

// The address of an object of this block in block `cluster_rank`.
IMBREX_KERNEL std::uint32_t dsmem_address(const void* object, int cluster_rank) {
    std::uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(object)), "r"(cluster_rank));
    return address;
}

// Stores into the DSMEM buffer at this address in block `cluster_rank`, completing on the barrier at `landing` there.
template <class Scope, class T, int Rows, int Columns, int Warps, class DsmemBuffer>
IMBREX_KERNEL void dsmem_store(const Scope& scope, DsmemBuffer& to, const fragment<T, Rows, Columns, Warps>& from,
                               barrier_word& landing, int cluster_rank, source) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(has_tma && fragment_type::each * sizeof(T) == 16, "imbrex: clusters of blocks need sm_90 or later");
    const std::uint32_t place = dsmem_address(to.values, cluster_rank) + thread_in(scope) * 16;
    const std::uint32_t barrier = dsmem_address(&landing, cluster_rank);
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        const uint4 chunk = read_as<uint4>(from.values[i / fragment_type::strips][i % fragment_type::strips]);
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
            "[%0], {%1, %2, %3, %4}, [%5];"
            :
            : "r"(place + i * Scope::threads * 16), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z), "r"(chunk.w), "r"(barrier)
            : "memory");
    }
}

// Copies an object to the one at the address of `to` in block `cluster_rank`, completing on the barrier at `landing`
// there.
template <class Scope, class T>
IMBREX_KERNEL void copy_to_block(const Scope& scope, T& to, const T& from, barrier_word& landing, int cluster_rank,
                                 source) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: clusters of blocks need sm_90 or later");
    if (issues(scope)) {
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :
                     : "r"(dsmem_address(&to, cluster_rank)), "r"(shared_address(&from)),
                       "r"(static_cast<std::uint32_t>(sizeof(T))), "r"(dsmem_address(&landing, cluster_rank))
                     : "memory");
    }
}

// Reads this block's own buffer after a wait for the barrier.
template <class Scope, class T, int Rows, int Columns, int Warps, class DsmemBuffer>
IMBREX_KERNEL void read_dsmem_buffer(const Scope& scope, fragment<T, Rows, Columns, Warps>& to, const DsmemBuffer& from,
                                     source) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
#pragma unroll
    for (int i = 0; i < fragment_type::blocks * fragment_type::strips; ++i) {
        write_as(to.values[i / fragment_type::strips][i % fragment_type::strips],
                 reinterpret_cast<const uint4*>(from.values)[i * Scope::threads + thread_in(scope)]);
    }
}

}  // namespace imbrex::hw
