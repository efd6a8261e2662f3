// Barriers in shared memory and by name.
//
// A transaction barrier turns its phase when the warps it counts have arrived and the bytes it was armed with have
// landed. Phases are counted from 0 by whoever waits; pipelines do that counting, and most kernels meet barriers only
// there.
//
// A named barrier is one of the sixteen the hardware has. Block and warpgroup syncs use the first nine; a kernel names
// the others and gets their numbers at compile time:
//
//   struct turn { static constexpr int count = 2; };     two barriers, one for each consumer
//   struct done {};                                      one
//   using barriers = named_barriers<turn, done>;
//   barriers::of<turn>(group.index()).sync(group, 8);
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/barrier.hpp>
#include <imbrex/hw/scope.hpp>

#include <type_traits>

namespace imbrex {

struct transaction_barrier {
    barrier_word word;

    // Counts `warps` arriving warps a phase. One scope does this, then `fence_barriers`, then the block syncs.
    template <class Scope>
    IMBREX_KERNEL void init(const Scope& scope, int warps, source here = source::current()) {
        hw::barrier_init(scope, word, warps, here);
    }
    // Every warp of the scope arrives; what it did before is known to who waits for the phase.
    template <class Scope>
    IMBREX_KERNEL void arrive(const Scope& scope, source here = source::current()) {
        hw::barrier_arrive(scope, word, here);
    }
    // The same if it is wanted.
    template <class Scope>
    IMBREX_KERNEL void arrive_if(const Scope& scope, bool wanted, source here = source::current()) {
        hw::barrier_arrive_if(scope, word, wanted, here);
    }
    // The same at this barrier's twin in another block of the cluster.
    template <class Scope>
    IMBREX_KERNEL void arrive_at(const Scope& scope, int cluster_rank, source here = source::current()) {
        hw::barrier_arrive_at(scope, word, cluster_rank, here);
    }
    // Every warp of the scope arrives, and together they add the bytes of copies that must land before the phase turns.
    template <class Scope>
    IMBREX_KERNEL void expect(const Scope& scope, int bytes, source here = source::current()) {
        hw::barrier_expect(scope, word, bytes, here);
    }
    // Until phase number `phase`, counted from 0, is over. Phase -1 is over from the start.
    template <class Scope>
    IMBREX_KERNEL void wait(const Scope& scope, unsigned phase, source here = source::current()) {
        hw::barrier_wait(scope, word, phase, here);
    }
    // The same for lanes that are known to come and to go on together: nothing is told to the compiler that might part them. And
    // if it is wanted.
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

// Makes the barriers this scope has initialised known to TMA and to the cluster.
template <class Scope>
IMBREX_KERNEL void fence_barriers(const Scope& scope, source here = source::current()) {
    hw::barrier_init_fence(scope, here);
}

// Makes this scope's ordinary writes to shared memory visible to TMA and wgmma, once a sync or barrier has followed.
template <class Scope>
IMBREX_KERNEL void fence_async(const Scope& scope, source here = source::current()) {
    hw::async_fence(scope, here);
}

struct named_barrier {
    int id;

    // Meets with the others, `warps` warps in all.
    template <class Scope>
    IMBREX_KERNEL void sync(const Scope& scope, int warps, source here = source::current()) const {
        hw::named_sync(scope, id, warps, here);
    }
    // Arrives and goes on.
    template <class Scope>
    IMBREX_KERNEL void arrive(const Scope& scope, int warps, source here = source::current()) const {
        hw::named_arrive(scope, id, warps, here);
    }
    // If it is wanted: meets with the others here, and arrives at the next. Lanes stay together, as in wait_converged.
    template <class Scope>
    IMBREX_KERNEL void sync_and_arrive_if(const Scope& scope, const named_barrier& next, int warps, bool wanted,
                                          source here = source::current()) const {
        hw::named_sync_and_arrive_if(scope, id, next.id, warps, wanted, here);
    }
};

template <class... Names>
struct named_barriers {
    // Barrier 0 is the block's, 1 to 8 are the warpgroups'.
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

    // The barrier of this name, or the one numbered `which` where a name stands for several.
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
