// Register tiles that go to another block of the cluster, on the device: st.async, 16 bytes of each thread at a time. The bytes are
// counted by a barrier of that block, as a bulk copy's are, so that nobody fences and nobody waits but who takes them out.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/fragment.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cstdint>

namespace imbrex::hw {

// Into the DSMEM buffer at this place in block `cluster_rank`, to land on the barrier at that place there.
template <class Scope, class T, int Rows, int Columns, int Warps, class DsmemBuffer>
IMBREX_KERNEL void dsmem_store(const Scope& scope, DsmemBuffer& to, const fragment<T, Rows, Columns, Warps>& from,
                               barrier_word& landing, int cluster_rank, source) {
    using fragment_type = fragment<T, Rows, Columns, Warps>;
    static_assert(has_tma && fragment_type::each * sizeof(T) == 16, "imbrex: clusters of blocks need sm_90 or later");
    std::uint32_t place, barrier;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(place)
        : "r"(shared_address(to.values) + thread_in(scope) * 16), "r"(cluster_rank));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(&landing)), "r"(cluster_rank));
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

// Out of this block's own, when the barrier has been waited for.
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
