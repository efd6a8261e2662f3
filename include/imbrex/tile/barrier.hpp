// Barriers: transaction barriers (mbarrier) in shared memory, and named barriers.
//
// The phase of a transaction barrier completes when the expected number of warps has arrived and the expected bytes of
// asynchronous copies (TMA, DSMEM stores) have landed. The waiting side counts phases from 0. Pipelines do this
// counting, and most kernels use mbarriers only through them.
//
// The hardware has sixteen named barriers (bar.sync, bar.arrive) per block. Block and warpgroup syncs use the first
// nine. A kernel declares names for the others, which get their numbers at compile time:
//
//   struct order { static constexpr int count = 2; };    two barriers, one for each consumer
//   struct done {};                                      one
//   using barriers = named_barriers<order, done>;
//   barriers::of<order>(group.index()).sync(group, 8);
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/scope.hpp>
#include <imbrex/hw/sync.hpp>

#include <type_traits>

namespace imbrex {

struct transaction_barrier {
    barrier_word word;

    // Expects `warps` arrivals per phase. One scope initialises, then calls `fence_barriers`; a block sync follows.
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int warps, source here = source::current()) {
        hw::barrier_init(scope, word, warps, here);
    }
    // Ends the use of the barrier (mbarrier.inval), before its memory is used otherwise or it is initialised again. No
    // phase may be incomplete; a sync must follow.
    template <class Scope>
    IMBREX_KERNEL void invalidate(const Scope& scope, source here = source::current()) {
        hw::barrier_invalidate(scope, word, here);
    }
    // Every warp of the scope arrives with release semantics: its earlier writes are visible after a wait for the
    // phase.
    template <class Scope>
    IMBREX_KERNEL void arrive(const Scope& scope, source here = source::current()) {
        hw::barrier_arrive(scope, word, here);
    }
    // arrive, if `wanted`.
    template <class Scope>
    IMBREX_KERNEL void arrive_if(const Scope& scope, bool wanted, source here = source::current()) {
        hw::barrier_arrive_if(scope, word, wanted, here);
    }
    // Arrives at the barrier at the same address in another block of the thread block cluster.
    template <class Scope>
    IMBREX_KERNEL void arrive_at(const Scope& scope, int cluster_rank, source here = source::current()) {
        hw::barrier_arrive_at(scope, word, cluster_rank, here);
    }
    // Every warp of the scope arrives (arrive.expect_tx). Together they add `bytes`, which must land to end the phase.
    template <class Scope>
    IMBREX_KERNEL void expect(const Scope& scope, int bytes, source here = source::current()) {
        hw::barrier_expect(scope, word, bytes, here);
    }
    // Waits until phase number `phase`, counted from 0, has completed. Phase -1 is complete from the start.
    template <class Scope>
    IMBREX_KERNEL void wait(const Scope& scope, unsigned phase, source here = source::current()) {
        hw::barrier_wait(scope, word, phase, here);
    }
    // The same for lanes that are converged before and after: the inline PTX loop does not make the compiler assume
    // divergence. The second form waits only if `wanted`.
    template <class Scope>
    IMBREX_KERNEL void wait_converged(const Scope& scope, unsigned phase, source here = source::current()) {
        hw::barrier_wait_converged(scope, word, phase, here);
    }
    template <class Scope>
    IMBREX_KERNEL void wait_converged_if(const Scope& scope, unsigned phase, bool wanted,
                                         source here = source::current()) {
        hw::barrier_wait_converged_if(scope, word, phase, wanted, here);
    }
};

// Makes the barriers that this scope has initialised visible to TMA and to the cluster.
template <class Scope>
IMBREX_KERNEL void fence_barriers(const Scope& scope, source here = source::current()) {
    hw::barrier_init_fence(scope, here);
}

// Proxy fence (fence.proxy.async): makes this scope's ordinary writes to shared memory visible to TMA and wgmma, once a
// sync or barrier has followed.
template <class Scope>
IMBREX_KERNEL void fence_async(const Scope& scope, source here = source::current()) {
    hw::async_fence(scope, here);
}

// The same for global memory: between ordinary writes and TMA operations on the same global memory. The writer calls it
// before it publishes them, or the issuer of the TMA operation after it has synchronised with the writer.
template <class Scope>
IMBREX_KERNEL void fence_async_global(const Scope& scope, source here = source::current()) {
    hw::async_fence_global(scope, here);
}

struct named_barrier {
    int id;

    // Arrives and waits for the others, `warps` warps in all.
    template <class Scope>
    IMBREX_KERNEL void sync(const Scope& scope, int warps, source here = source::current()) const {
        hw::named_sync(scope, id, warps, here);
    }
    // Arrives without waiting.
    template <class Scope>
    IMBREX_KERNEL void arrive(const Scope& scope, int warps, source here = source::current()) const {
        hw::named_arrive(scope, id, warps, here);
    }
    // If `wanted`: syncs at this barrier and arrives at the next. Lanes stay converged, as in wait_converged.
    template <class Scope>
    IMBREX_KERNEL void sync_and_arrive_if(const Scope& scope, const named_barrier& next, int warps, bool wanted,
                                          source here = source::current()) const {
        hw::named_sync_and_arrive_if(scope, id, next.id, warps, wanted, here);
    }
};

template <class... Names>
struct named_barriers {
    // Barrier 0 is the block's; 1 to 8 are the warpgroups'.
    static constexpr int first_free = 9;
    static constexpr int available = 16 - first_free;

    template <class Name>
    static constexpr IMBREX_FN int count_of() {
        if constexpr (requires { Name::count; }) {
            return Name::count;
        } else {
            return 1;
        }
    }
    static_assert((0 + ... + count_of<Names>()) <= available, "imbrex: a kernel may name at most 7 barriers");

    // The barrier of this name, or number `which` of a name with a count.
    template <class Name>
    static constexpr IMBREX_FN named_barrier of(int which = 0) {
        static_assert((false || ... || same<Name, Names>), "imbrex: this barrier is not in the kernel's list of names");
        return named_barrier{first<Name>() + which};
    }

  private:
    template <class A, class B>
    static constexpr bool same = std::is_same_v<A, B>;

    template <class Name>
    static constexpr IMBREX_FN int first() {
        int next = first_free;
        int found = -1;
        ((found = found < 0 && same<Name, Names> ? next : found, next += count_of<Names>()), ...);
        return found;
    }
};

}  // namespace imbrex
