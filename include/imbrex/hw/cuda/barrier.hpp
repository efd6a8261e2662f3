// Barriers in shared memory (mbarrier) and the block's named barriers. An mbarrier here counts warps: in each warp that
// arrives, the lanes first meet and then one of them arrives for all. It also counts the bytes of bulk copies, and its
// phase ends when both counts are met.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/config.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/cuda/thread.hpp>

#include <cuda/ptx>

namespace imbrex::hw {

// By one thread, before anyone uses the barrier; barrier_init_fence and a sync of the block, or of the cluster where
// its other blocks use it, must follow.
template <class Scope>
IMBREX_KERNEL void barrier_init(const Scope& scope, barrier_word& barrier, int warps, source = source::current()) {
    // Not an elected lane: the compiler joins the initialisations of all barriers of a kernel under one such condition.
    if (thread_in(scope) == 0) cuda::ptx::mbarrier_init(&barrier.word, static_cast<std::uint32_t>(warps));
}

// Shows initialised barriers to TMA and to the other blocks of the cluster.
template <class Scope>
IMBREX_KERNEL void barrier_init_fence(const Scope&, source = source::current()) {
    if constexpr (has_tma) {
        cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
        cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    }
}

// Every warp of the scope arrives once: what its lanes did before is seen by who waits for the phase.
template <class Scope>
IMBREX_KERNEL void barrier_arrive(const Scope&, barrier_word& barrier, source = source::current()) {
    __syncwarp();
    if (lane() == 0) cuda::ptx::mbarrier_arrive(&barrier.word);
}

// The same if it is wanted: without a branch, which the compiler would not schedule across.
template <class Scope>
IMBREX_KERNEL void barrier_arrive_if(const Scope&, barrier_word& barrier, bool wanted, source = source::current()) {
    __syncwarp();
    if ((lane() == 0) & wanted) cuda::ptx::mbarrier_arrive(&barrier.word);
}

// The same at this barrier's counterpart in another block of the cluster (or in this one). What it tells the other block
// is that this warp has read its shared memory; a release of the cluster's scope would also wait for this warp's writes
// to global memory, in the middle of a loop.
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

// An arrival of each warp, which adds bytes of bulk copies that the phase must also see: of a scope's, its warps an equal part each.
template <class Scope>
IMBREX_KERNEL void barrier_expect(const Scope&, barrier_word& barrier, int bytes, source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: barrier_expect needs sm_90 or later");
    if (elected_lane()) {
        cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                                             &barrier.word, static_cast<std::uint32_t>(bytes / Scope::warps));
    }
}

// Until phase number `phase`, counted from 0, has ended. The hardware sees its parity only, and takes phase -1 of a new
// barrier as ended.
template <class Scope>
IMBREX_KERNEL void barrier_wait(const Scope&, barrier_word& barrier, unsigned phase, source = source::current()) {
    if constexpr (has_tma) {
        while (!cuda::ptx::mbarrier_try_wait_parity(&barrier.word, phase & 1U)) {}
    } else {
        while (!cuda::ptx::mbarrier_test_wait_parity(&barrier.word, phase & 1U)) {}
    }
}

// The same for lanes that wait together and go on together: a loop of its own in the hardware's language, which tells the compiler
// nothing that might part them.
template <class Scope>
IMBREX_KERNEL void barrier_wait_converged(const Scope&, barrier_word& barrier, unsigned phase,
                                          source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: waiting in step needs sm_90 or later");
    asm volatile(
        "{\n\t.reg .pred over;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t@!over bra again;\n\t}"
        :
        : "r"(shared_address(&barrier)), "r"(phase & 1U)
        : "memory");
}
// The same if it is wanted.
template <class Scope>
IMBREX_KERNEL void barrier_wait_converged_if(const Scope&, barrier_word& barrier, unsigned phase, bool wanted,
                                             source = source::current()) {
    static_assert(has_tma && Scope::warps > 0, "imbrex: waiting in step needs sm_90 or later");
    asm volatile(
        "{\n\t.reg .pred over, wanted;\n\tsetp.ne.u32 wanted, %2, 0;\n\t@!wanted bra gone;\n"
        "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n\t@!over bra again;\n"
        "gone:\n\t}"
        :
        : "r"(shared_address(&barrier)), "r"(phase & 1U), "r"(static_cast<unsigned>(wanted))
        : "memory");
}

// The block's sixteen named barriers, of which hw/cuda/scope.hpp keeps the first nine. `warps` counts all who arrive,
// waiting or not.
template <class Scope>
IMBREX_KERNEL void named_sync(const Scope&, int id, int warps, source = source::current()) {
    asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(warps * 32) : "memory");
}
template <class Scope>
IMBREX_KERNEL void named_arrive(const Scope&, int id, int warps, source = source::current()) {
    asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(warps * 32) : "memory");
}

// Meets at one and arrives at the other, if it is wanted, without a branch.
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

// Lets TMA and the tensor cores see what this thread wrote to shared memory; a barrier must follow.
template <class Scope>
IMBREX_KERNEL void async_fence(const Scope&, source = source::current()) {
    if constexpr (has_tma) cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

// The checker of the host world wants to know which bytes are which stage of a pipeline.
template <class Scope>
IMBREX_KERNEL void label_stage(const Scope&, const void*, int, int, source = source::current()) {}

}  // namespace imbrex::hw
