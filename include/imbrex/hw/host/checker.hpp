// The checker: the rules of memory. Each access is compared with the history of its bytes. An earlier write, and for a
// write also the reads since, must be ordered before it by the kernel's synchronisation. What that requires depends on
// both sides: `check_ordering` is the memory model within a cluster, `check_other_cluster` that between clusters and
// kernels. docs/memory_model.md explains it with pictures. Global memory is in hw/host/global_memory.hpp.
#pragma once

#include <imbrex/hw/host/machine.hpp>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

namespace imbrex::hw {

enum class verdict {
    ordered,
    unsynchronised,  // ordered by this scope's program order, but other warps of it may run ahead
    unfenced,        // ordered, but the async proxy may not see an ordinary write yet
    unordered
};

// An asynchronous operation that its scope has waited for.
inline bool waited_for(const access& one) {
    for (const group_queue* queue : one.by->queues()) {
        if (one.actor == queue->actor) return one.tick <= queue->waited;
    }
    return false;
}

// An access of a block, complete or waited for, seen by one of its roles; or of an ended role, seen by its block. They
// are the same warps at other times, so the missing synchronisation is a block sync.
inline bool by_the_same_block(const access& earlier, const simulated_warp& now) {
    const bool related = now.parent == earlier.by || earlier.by->parent == &now;
    return related && (earlier.actor == earlier.by->actor || waited_for(earlier));
}

enum class memory_space { shared, global };

// The same for an access of another cluster, on global memory. Only atomic operations order clusters; only the end of
// a kernel, which pdl_wait waits for, orders kernels that overlap. A kernel may overwrite what its predecessor has read
// before it allowed the kernel to start.
inline verdict check_other_cluster(const access& earlier, bool earlier_writes, const simulated_warp& now,
                                   const access& made) {
    const cluster_state& other = *earlier.by->block->cluster;
    if (now.knows.grid.knows_complete(other.kernel->number)) return verdict::ordered;
    if (!earlier_writes && other.kernel != now.block->cluster->kernel) {
        const cluster_clocks* before = now.block->cluster->kernel->started_after.find(other.number);
        if (before != nullptr && earlier.tick <= before->seen[earlier.actor]) return verdict::ordered;
    }
    const cluster_clocks* known = now.knows.grid.find(other.number);
    if (known == nullptr || earlier.tick > known->seen[earlier.actor]) return verdict::unordered;
    if (made.async_proxy && earlier_writes && !earlier.async_proxy && earlier.tick > known->async_seen[earlier.actor]) {
        return verdict::unfenced;
    }
    return verdict::ordered;
}

// Is the earlier access ordered before `made`, which this scope makes or issues now? The lanes of one warp are
// converged from one operation to the next, except for cp.async: each lane waits for its own copies, and may issue them
// before other lanes have read the old contents.
inline verdict check_ordering(const access& earlier, bool earlier_writes, const simulated_warp& now, const access& made,
                              memory_space space = memory_space::shared) {
    if (earlier.by->block->cluster != now.block->cluster) {
        return check_other_cluster(earlier, earlier_writes, now, made);
    }
    const bool global = space == memory_space::global;
    const std::uint32_t fenced = global ? now.global_fenced : now.fenced;
    const std::uint32_t async_synced = global ? now.global_async_synced : now.async_synced;
    const vector_clock& async_seen = global ? now.knows.global_async_seen : now.knows.async_seen;
    const bool one_warp = now.warps == 1;
    const bool async_proxy = made.async_proxy;
    const bool by_lanes = made.actor == now.copies.actor;
    const bool same_bytes_by_same_warp = made.partition != 0 && earlier.partition == made.partition;
    if (earlier.actor == now.actor) {
        if (async_proxy && earlier_writes) {
            if (earlier.tick <= (one_warp ? fenced : async_synced)) return verdict::ordered;
            return earlier.tick <= fenced && earlier.tick > now.synced ? verdict::unsynchronised : verdict::unfenced;
        }
        const bool converged = one_warp ? !by_lanes : !async_proxy && same_bytes_by_same_warp;
        const bool known = converged || earlier.tick <= now.synced;
        return known ? verdict::ordered : verdict::unsynchronised;
    }
    for (const group_queue* own : now.queues()) {
        if (earlier.actor != own->actor) continue;
        if (earlier.tick > own->waited) return verdict::unordered;
        const bool lanes_apart = own == &now.copies && !by_lanes;
        const bool converged = one_warp ? !lanes_apart : same_bytes_by_same_warp;
        if (earlier.tick > own->synced && !converged) return verdict::unsynchronised;
    }
    if (earlier.tick > now.knows.seen[earlier.actor]) {
        return by_the_same_block(earlier, now) ? verdict::unsynchronised : verdict::unordered;
    }
    if (async_proxy && earlier_writes && !earlier.async_proxy && earlier.tick > async_seen[earlier.actor]) {
        return verdict::unfenced;
    }
    // An ordinary write or a DSMEM store of another block of the cluster: a wait at a barrier orders only the accesses of
    // one block.
    const bool fence_needed = earlier_writes && !global && (!earlier.async_proxy || earlier.dsmem_store);
    const bool from_other_block = fence_needed && earlier.by->block != now.block;
    if (from_other_block && !async_proxy && earlier.tick > now.knows.cluster_view[earlier.actor])
        return verdict::unordered;
    return verdict::ordered;
}

// fence_cluster, also part of cluster_sync: first the loads of this scope see what other blocks have fenced, then what
// its own block has done is ordered for other blocks.
inline void fence_for_cluster(const machine& m, simulated_warp& one) {
    one.knows.cluster_view.join(one.knows.cluster_seen);
    one.knows.seen.set(one.actor, one.tick);
    for (const simulated_warp* other : one.block->cluster->warps) {
        if (other->block == one.block) one.knows.cluster_seen.raise(other->actor, one.knows.seen[other->actor]);
    }
    for (const auto& [word, state] : m.barriers) {  // DSMEM stores land at barriers
        if (state.block == one.block) one.knows.cluster_view.raise(state.actor, one.knows.seen[state.actor]);
    }
}

inline hazard_kind hazard_of(verdict broken, const access& earlier, bool earlier_writes, const access& now,
                             bool writes) {
    if (broken == verdict::unfenced) return hazard_kind::missing_proxy_fence;
    if (broken == verdict::unsynchronised) return hazard_kind::unsynchronised_scope;
    if (earlier.deferred && earlier_writes && !writes) return hazard_kind::read_before_landed;
    const bool refill = now.deferred && writes && !earlier_writes && earlier.by != now.by;
    if (refill && (!earlier.deferred || waited_for(earlier))) return hazard_kind::refilled_before_release;
    if (earlier.deferred) return hazard_kind::overwritten_in_flight;
    return hazard_kind::race;
}

// The block of this cluster whose shared memory holds the address, or null.
inline block_state* block_holding(const simulated_warp& now, const void* address) {
    const auto* at = static_cast<const unsigned char*>(address);
    for (block_state* block : now.block->cluster->blocks) {
        if (at >= block->memory && at < block->memory + block->bytes) return block;
    }
    return nullptr;
}

inline int stage_of(const block_state& block, const void* address) {
    for (const stage_label& label : block.stages) {
        if (address >= label.begin && address < label.end) return label.stage;
    }
    return -1;
}

// Reports an access to bytes that hold a barrier: only the operations on barriers may access it, until it is invalidated.
inline void check_no_barrier(machine& m, const simulated_warp& now, const void* address, int bytes,
                             const access& made) {
    const auto* const begin = static_cast<const unsigned char*>(address);
    const auto at = m.barriers.lower_bound(reinterpret_cast<const barrier_word*>(begin - sizeof(barrier_word) + 1));
    if (at == m.barriers.end() || reinterpret_cast<const unsigned char*>(at->first) >= begin + bytes) return;
    m.report(hazard_kind::race, *now.block,
             str_cat("the bytes hold a barrier, at byte ",
                     reinterpret_cast<const unsigned char*>(at->first) - at->second.block->memory,
                     " of shared memory; invalidate it first"),
             {m.location_of(made), m.location_of(at->second.init)});
}

// Checks and records one access to `bytes` bytes of shared memory.
inline void touch(machine& m, simulated_warp& now, const void* address, int bytes, access made, bool writes) {
    block_state* block = block_holding(now, address);
    if (block == nullptr && released_memory::holds(address)) {
        m.report(hazard_kind::used_after_release, *now.block, "the handle holds no stage",
                 {m.location_of(made),
                  {now.name(), "the release, or the move of the handle", now.released_at.file, now.released_at.line}});
    }
    if (block == nullptr) {
        m.report(hazard_kind::beyond_limits, *now.block, "the address is not in the cluster's shared memory",
                 {m.location_of(made)});
    }
    const int begin = static_cast<int>(static_cast<const unsigned char*>(address) - block->memory);
    made.stage = stage_of(*block, address);
    check_no_barrier(m, now, address, bytes, made);
    m.progress();
    const auto compare_all = [&](const byte_history& history) {
        const auto compare = [&](const access& earlier, bool earlier_writes) {
            const verdict found = check_ordering(earlier, earlier_writes, now, made);
            if (found == verdict::ordered) return;
            m.report(hazard_of(found, earlier, earlier_writes, made, writes), *now.block,
                     str_cat("shared bytes ", begin, " to ", begin + bytes - 1),
                     {m.location_of(made), m.location_of(earlier)});
        };
        // The readers first: the reader of a write is the more informative location.
        if (writes) {
            for (const access& read : history.reads) compare(read, false);
        }
        if (history.written) {
            compare(history.write, true);
        } else if (!writes) {
            m.report(hazard_kind::uninitialised_read, *now.block,
                     str_cat("shared bytes ", begin, " to ", begin + bytes - 1), {m.location_of(made)});
        }
    };
    if (writes) {
        block->shadow->write(begin, begin + bytes, made, compare_all);
    } else {
        block->shadow->visit(begin, begin + bytes, [&](byte_history& history) {
            compare_all(history);
            history.remember_read(made);
        });
    }
}

// Reports a subtile, or a part of a vector, that is not inside its tile.
template <class Shared>
void check_inside(machine& m, const simulated_warp& now, const Shared& shared, const char* what, source where) {
    const auto outside = [&](std::string detail) {
        m.report(hazard_kind::outside_tile, *now.block, std::move(detail),
                 {{now.name(), what, where.file, where.line}});
    };
    if constexpr (requires { shared.first_row; }) {
        using tile = std::remove_pointer_t<decltype(shared.tile)>;
        const int row = shared.first_row, column = shared.first_column;
        if (row >= 0 && column >= 0 && row + Shared::rows <= tile::rows && column + Shared::columns <= tile::columns) {
            return;
        }
        outside(str_cat("rows ", row, " to ", row + Shared::rows - 1, ", columns ", column, " to ",
                        column + Shared::columns - 1, " of a tile of ", tile::rows, " x ", tile::columns));
    } else if constexpr (requires { shared.vector; }) {
        using vector = std::remove_pointer_t<decltype(shared.vector)>;
        if (shared.first >= 0 && shared.first + Shared::length <= vector::length) return;
        outside(str_cat("elements ", shared.first, " to ", shared.first + Shared::length - 1, " of a vector of ",
                        vector::length));
    }
}

// The same for every contiguous run of bytes of a shared tile, a subtile, or a shared vector.
template <class Shared, class F>
void for_each_run(const Shared& shared, F f) {
    if constexpr (requires { Shared::length; }) {
        f(shared.address(0), Shared::bytes);
    } else {
        constexpr int row_bytes = Shared::columns * static_cast<int>(sizeof(typename Shared::element));
        if (shared.address(1, 0) == shared.address(0, 0) + Shared::columns) {
            f(shared.address(0, 0), Shared::rows * row_bytes);
        } else {
            for (int row = 0; row < Shared::rows; ++row) f(shared.address(row, 0), row_bytes);
        }
    }
}

// How a collective distributes the bytes of a tile over its warps, as a number: equal numbers mean equal distributions.
inline std::uint64_t partition_of(int way, const void* first, int rows, int columns, int warps) {
    std::uint64_t hash = reinterpret_cast<std::uintptr_t>(first);
    for (const int part : {way, rows, columns, warps})
        hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x100000001b3u;
    return hash | 1;
}

// An ordinary access by a scope to a shared tile. `way` numbers the distribution; 0: any warp may access any byte.
template <class Shared>
void touch_ordinary(machine& m, simulated_warp& now, const Shared& shared, bool writes, int way, const char* what,
                    source where) {
    check_inside(m, now, shared, what, where);
    access made{&now, now.actor, ++now.tick, false, false, -1, 0, what, where};
    if constexpr (requires { Shared::length; }) {
        if (way != 0) made.partition = partition_of(way, shared.address(0), 1, Shared::length, now.warps);
    } else {
        if (way != 0)
            made.partition = partition_of(way, shared.address(0, 0), Shared::rows, Shared::columns, now.warps);
    }
    for_each_run(shared, [&](const void* address, int bytes) { touch(m, now, address, bytes, made, writes); });
}

// The completed operations of each thread of the scope become visible to its other threads.
inline void own_work_known(simulated_warp& one) {
    one.synced = one.tick;
    for (group_queue* own : {&one.copies, &one.stores, &one.mmas, &one.written}) own->synced = own->waited;
}

// What a simulated warp publishes when it arrives at a barrier, and what it learns from a wait. The lanes of a warp
// converge before it arrives.
inline void release(simulated_warp& one, visible_clocks& gathering) {
    if (one.warps == 1) own_work_known(one);
    one.knows.seen.set(one.actor, one.tick);
    one.knows.async_seen.set(one.actor, one.fenced);
    if (one.global_fenced > 0) one.knows.global_async_seen.set(one.actor, one.global_fenced);
    gathering.join(one.knows);
    gathering.async_seen.raise(one.copies.actor, one.fenced_copies);
    gathering.arrived.push_back(one.actor);
}
// A scope whose own warps have arrived at this barrier is synced. What it has waited for before it arrived at another
// barrier, from which this one followed, is known to all of its warps, too; for ordinary accesses that is not accepted,
// which is stricter than necessary.
inline void acquire(simulated_warp& one, const visible_clocks& completed) {
    if (std::find(completed.arrived.begin(), completed.arrived.end(), one.actor) != completed.arrived.end()) {
        one.synced = std::max(one.synced, completed.seen[one.actor]);
        one.async_synced = std::max(one.async_synced, completed.async_seen[one.actor]);
        one.global_async_synced = std::max(one.global_async_synced, completed.global_async_seen[one.actor]);
    }
    for (group_queue* own : {&one.copies, &one.stores, &one.mmas, &one.written}) {
        own->synced = std::max(own->synced, completed.seen[own->actor]);
    }
    one.knows.join(completed);
}

// A phase of a barrier has completed: the gathered clocks become available to waits.
inline void publish(visible_clocks& gathering, visible_clocks& completed, int actor, std::uint32_t generation) {
    completed = std::exchange(gathering, {});
    if (actor < 0) return;
    completed.seen.raise(actor, generation);
    completed.phases.raise(actor, generation);
}

// All warps of the scope have synced: the completed operations of each are visible to all.
inline void meet(simulated_warp& one) {
    own_work_known(one);
    one.async_synced = one.fenced;
    one.global_async_synced = one.global_fenced;
    one.knows.async_seen.raise(one.copies.actor, one.fenced_copies);
    acquire(one, one.clocks_of_children);
}

}  // namespace imbrex::hw
