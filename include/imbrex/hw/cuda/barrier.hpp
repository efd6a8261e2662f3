// mbarriers in shared memory, the named barriers of a block, and the proxy fence. An mbarrier here counts warps: the
// lanes of an arriving warp converge, and one of them arrives for all. It also counts the bytes of bulk copies, and its
// phase completes when both counts are met.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cuda/ptx>

namespace imbrex::hw {

// Called by one scope before any use of the barrier. barrier_init_fence and a block sync (a cluster sync if other
// blocks use the barrier) must follow.
template <class Scope>
IMBREX_KERNEL void barrier_init(const Scope& scope, barrier_word& barrier, int warps, source = source::current()) {
    // Not an elected lane: the compiler merges the initialisations of all barriers of a kernel under one condition.
    if (thread_in(scope) == 0) cuda::ptx::mbarrier_init(&barrier.word, static_cast<std::uint32_t>(warps));
}

// Called by one scope after the last use.
template <class Scope>
IMBREX_KERNEL void barrier_invalidate(const Scope& scope, barrier_word& word, source = source::current()) {
    if (elected(scope)) asm volatile("mbarrier.inval.shared.b64 [%0];" : : "r"(shared_address(&word)) : "memory");
}

// Makes initialised barriers visible to TMA and to the other blocks of the cluster (fence.mbarrier_init).
template <class Scope>
IMBREX_KERNEL void barrier_init_fence(const Scope&, source = source::current()) {
    if constexpr (has_tma) {
        cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
}

// Every warp of the scope arrives once with release semantics.
template <class Scope>
IMBREX_KERNEL void barrier_arrive(const Scope&, barrier_word& barrier, source = source::current()) {
    __syncwarp();
    if (lane() == 0) cuda::ptx::mbarrier_arrive(&barrier.word);
}

// The same if `wanted`, without a branch: the compiler does not schedule across branches.
template <class Scope>
IMBREX_KERNEL void barrier_arrive_if(const Scope&, barrier_word& barrier, bool wanted, source = source::current()) {
    __syncwarp();
    if ((lane() == 0) & wanted) cuda::ptx::mbarrier_arrive(&barrier.word);
}

// The same at this barrier's counterpart in another block of the cluster (or in this one). It signals that this warp
// has read its shared memory. A release at cluster scope would also wait for this warp's writes to global memory, in
// the middle of a loop.
template <class Scope>
IMBREX_KERNEL void barrier_arrive_at(const Scope&, barrier_word& barrier, int cluster_rank,
                                     source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: clusters of blocks need sm_90 or later");
    __syncwarp();
    if (lane() == 0) {
        asm volatile(
            "{\n\t.reg .b32 remote;\n\t"
            "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
            "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}"
            :
            : "r"(shared_address(&barrier)), "r"(cluster_rank)
            : "memory");
    }
}

// Each warp arrives and adds expected bytes of bulk copies (arrive.expect_tx): the warps of a scope add equal shares.
template <class Scope>
IMBREX_KERNEL void barrier_expect(const Scope&, barrier_word& barrier, int bytes, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: barrier_expect needs sm_90 or later");
    if (elected_lane()) {
        cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                             &barrier.word, static_cast<std::uint32_t>(bytes / Scope::warps));
    }
}

// Waits until phase number `phase`, counted from 0, has completed. The hardware tests only the parity, and treats phase
// -1 of a new barrier as completed.
template <class Scope>
IMBREX_KERNEL void barrier_wait(const Scope&, barrier_word& barrier, unsigned phase, source = source::current()) {
    if constexpr (has_tma) {
        while (!cuda::ptx::mbarrier_try_wait_parity(&barrier.word, phase & 1U)) {}
    } else {
        while (!cuda::ptx::mbarrier_test_wait_parity(&barrier.word, phase & 1U)) {}
    }
}

// The same for lanes that are converged before and after: a loop in inline PTX, which does not make the compiler assume
// divergence.
template <class Scope>
IMBREX_KERNEL void barrier_wait_converged(const Scope&, barrier_word& barrier, unsigned phase,
                                          source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: a converged wait needs sm_90 or later");
    asm volatile(
        "{\n\t.reg .pred over;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t@!over bra again;\n\t}"
        :
        : "r"(shared_address(&barrier)), "r"(phase & 1U)
        : "memory");
}
// The same if `wanted`.
template <class Scope>
IMBREX_KERNEL void barrier_wait_converged_if(const Scope&, barrier_word& barrier, unsigned phase, bool wanted,
                                             source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: a converged wait needs sm_90 or later");
    asm volatile(
        "{\n\t.reg .pred over, wanted;\n\tsetp.ne.u32 wanted, %2, 0;\n\t@!wanted bra gone;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t@!over bra again;\n"
        "gone:\n\t}"
        :
        : "r"(shared_address(&barrier)), "r"(phase & 1U), "r"(static_cast<unsigned>(wanted))
        : "memory");
}

// The sixteen named barriers of a block, of which hw/cuda/scope.hpp uses the first nine. `warps` counts all arriving
// warps, whether they wait or not.
template <class Scope>
IMBREX_KERNEL void named_sync(const Scope&, int id, int warps, source = source::current()) {
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(warps * 32) : "memory");
}
template <class Scope>
IMBREX_KERNEL void named_arrive(const Scope&, int id, int warps, source = source::current()) {
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(warps * 32) : "memory");
}

// If `wanted`, syncs at one barrier and arrives at the other, without a branch.
template <class Scope>
IMBREX_KERNEL void named_sync_and_arrive_if(const Scope&, int meet, int arrive, int warps, bool wanted,
                                            source = source::current()) {
    asm volatile(
        "{\n\t.reg .pred wanted;\n\tsetp.ne.u32 wanted, %3, 0;\n\t@wanted bar.sync %0, %2;\n\t"
        "@wanted bar.arrive %1, %2;\n\t}"
        :
        : "r"(meet), "r"(arrive), "r"(warps * 32), "r"(static_cast<unsigned>(wanted))
        : "memory");
}

// Proxy fence (fence.proxy.async): makes this thread's writes to shared memory visible to TMA and wgmma; a barrier must
// follow.
template <class Scope>
IMBREX_KERNEL void async_fence(const Scope&, source = source::current()) {
    if constexpr (has_tma) cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

// The same for global memory.
template <class Scope>
IMBREX_KERNEL void async_fence_global(const Scope&, source = source::current()) {
    if constexpr (has_tma) cuda::ptx::fence_proxy_async(cuda::ptx::space_global);
}

// The host world's checker reports the use of a released stage; not used on the device.
template <class Item>
IMBREX_KERNEL Item& released_stage(source) {
    return *static_cast<Item*>(nullptr);
}
template <class Scope>
IMBREX_KERNEL void release_without_stage(const Scope&, bool, source, source) {}

// Tells the host world's checker which bytes are a stage of a pipeline; nothing on the device.
template <class Scope>
IMBREX_KERNEL void label_stage(const Scope&, const void*, int, int, source = source::current()) {}

}  // namespace imbrex::hw
