// The history of global memory in checked mode, exact to the byte, for all kernels of one stream. Each operation on
// global memory is compared with the earlier ones of other scopes, blocks and kernels by the rules of checker.hpp.
// Memory has contents when a stream begins, unless it is marked as uninitialised. Atomic operations do not conflict with
// each other; a release publishes what its scope knows at the address, and an acquire learns it.
#pragma once

#include <imbrex/core/global_tile.hpp>
#include <imbrex/core/memory_order.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/checker.hpp>
#include <imbrex/hw/host/machine.hpp>
#include <imbrex/hw/host/reliance.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace imbrex::hw {

// How an operation uses global memory.
enum class global_use { read, write, atomic_load, atomic_store, atomic_update };

constexpr bool writes(global_use how) {
    return how != global_use::read && how != global_use::atomic_load;
}
constexpr bool needs_contents(global_use how) {
    return how != global_use::write && how != global_use::atomic_store;
}
constexpr bool is_atomic(global_use how) {
    return how != global_use::read && how != global_use::write;
}

// The history of a range of bytes: the last ordinary write and everything since.
struct global_history : byte_history {
    std::uintptr_t end = 0;
    bool initialised = true;
    std::vector<access> atomic_reads, atomic_writes;  // the latest of each actor

    void remember(const access& made, global_use how) {
        if (how == global_use::write) {
            remember_write(made);
            atomic_reads.clear();
            atomic_writes.clear();
        } else {
            add(how == global_use::read ? reads : writes(how) ? atomic_writes : atomic_reads, made);
        }
    }

  private:
    // The latest access of each scope. Memory that many blocks read, such as weights, would have many: beyond a limit a
    // new one takes the place of an old one.
    static void add(std::vector<access>& list, const access& made) {
        for (access& old : list) {
            if (old.by == made.by && old.partition == made.partition) {
                old = made;
                return;
            }
        }
        if (list.size() < most_remembered) {
            list.push_back(made);
        } else {
            list[(made.by->block->number * 7 + made.tick) % most_remembered] = made;
        }
    }
    static constexpr std::size_t most_remembered = 32;
};

// What atomic operations at one address have published.
struct atomic_state {
    grid_clock released;  // by the releases that an acquire there synchronises with
    memory_scope among = memory_scope::device;
    access last;         // operation that wrote
    grid_clock claimed;  // the same as if every operation were a release at device scope
};

class global_memory {
  public:
    // Marks memory whose contents are undefined, such as a workspace.
    void mark_uninitialised(const memory_range& range) {
        visit(range.begin(), range.end(), [](std::uintptr_t, global_history& one) { one.initialised = false; });
    }
    // Accesses to this memory are not checked.
    void exempt(const memory_range& range) { exempt_.push_back(range); }

    bool tracks(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return std::none_of(exempt_.begin(), exempt_.end(),
                            [at](const memory_range& one) { return at >= one.begin() && at < one.end(); });
    }

    // Calls f(begin, history) for each interval of [begin, end), split at these bounds.
    template <class F>
    void visit(std::uintptr_t begin, std::uintptr_t end, F f) {
        auto at = histories_.upper_bound(begin);
        if (at != histories_.begin()) {
            auto before = std::prev(at);
            if (before->second.end > begin) at = before->first < begin ? split(before, begin) : before;
        }
        for (std::uintptr_t next = begin; next < end; ++at) {
            if (at == histories_.end() || at->first > next) {
                at = histories_.emplace_hint(at, next, global_history{});
                const auto after = std::next(at);
                at->second.end = after == histories_.end() ? end : std::min(end, after->first);
            } else if (at->second.end > end) {
                split(at, end);
            }
            f(at->first, at->second);
            next = at->second.end;
        }
    }

    std::map<const void*, atomic_state> atomics;

  private:
    using histories = std::map<std::uintptr_t, global_history>;

    // Splits an interval; returns the second half.
    histories::iterator split(histories::iterator one, std::uintptr_t at) {
        global_history second = one->second;
        one->second.end = at;
        return histories_.emplace_hint(std::next(one), at, std::move(second));
    }

    histories histories_;
    std::vector<memory_range> exempt_;
};

inline hazard_kind global_hazard_of(verdict broken, const access& earlier, bool earlier_writes,
                                    const simulated_warp& now, const access& made, bool writes) {
    const cluster_state& other = *earlier.by->block->cluster;
    if (other.kernel != now.block->cluster->kernel) return hazard_kind::before_pdl_wait;
    if (broken == verdict::unfenced) return hazard_kind::missing_proxy_fence;
    if (broken == verdict::unsynchronised) return hazard_kind::unsynchronised_scope;
    if (earlier.atomic_bytes > 0 && made.atomic_bytes > 0) return hazard_kind::race;  // of two sizes
    const cluster_clocks* claimed = now.knows.claimed.find(other.number);
    if (claimed != nullptr && earlier.tick <= claimed->seen[earlier.actor]) return hazard_kind::relaxed_publication;
    if (earlier.deferred && earlier_writes && !writes && earlier.by == &now) return hazard_kind::read_before_landed;
    if (earlier.deferred && earlier_writes && !made.deferred && !writes && !waited_for(earlier)) {
        return hazard_kind::read_before_landed;
    }
    if (earlier.deferred && earlier.by->block == now.block && !waited_for(earlier)) {
        return hazard_kind::overwritten_in_flight;
    }
    return hazard_kind::race;
}

// Checks and records one access to a range of global memory.
inline void touch_global_range(machine& m, simulated_warp& now, const void* address, std::size_t bytes,
                               const access& made, global_use how) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    m.global->visit(begin, begin + bytes, [&](std::uintptr_t at, global_history& history) {
        const auto compare = [&](const access& earlier, bool earlier_writes) {
            const verdict found = check_ordering(earlier, earlier_writes, now, made, memory_space::global);
            if (found == verdict::ordered) return list_relied_on(m, earlier, now);
            m.report(global_hazard_of(found, earlier, earlier_writes, now, made, writes(how)), *now.block,
                     str_cat("global memory, bytes ", at - begin, " to ", history.end - begin - 1, " of the access"),
                     {m.location_of(made), m.location_of(earlier)});
        };
        // The readers first: the reader of a write is the more informative location.
        if (writes(how)) {
            for (const access& read : history.reads) compare(read, false);
        }
        if (history.written) {
            compare(history.write, true);
        } else if (needs_contents(how) && !history.initialised && history.atomic_writes.empty()) {
            m.report(hazard_kind::uninitialised_read, *now.block,
                     str_cat("global memory, bytes ", at - begin, " to ", history.end - begin - 1, " of the access"),
                     {m.location_of(made)});
        }
        // Atomic operations of one size do not conflict.
        const auto conflicts = [&](const access& other) { return other.atomic_bytes != made.atomic_bytes; };
        for (const access& other : history.atomic_writes) {
            if (conflicts(other)) compare(other, true);
        }
        for (const access& other : history.atomic_reads) {
            if (writes(how) && conflicts(other)) compare(other, false);
        }
        history.remember(made, how);
    });
}

// A rectangle of global memory: the part of it that is in bounds.
template <class T>
void touch_global(const context& c, const global_tile<T>& tile, int rows, int columns, const access& made,
                  global_use how) {
    if (c.checked() && tile.rows == global_tile<T>::before_matrix) {
        c.on->report(hazard_kind::outside_tile, *c.by->block, "the rectangle begins before its matrix: negative index",
                     {c.on->location_of(made)});
    }
    if (!c.checked() || c.on->global == nullptr || !c.on->global->tracks(tile.pointer)) return;
    rows = std::min(rows, tile.rows);
    columns = std::min(columns, tile.columns);
    if (rows <= 0 || columns <= 0) return;
    const std::size_t row_bytes = static_cast<std::size_t>(columns) * sizeof(T);
    if (tile.row_stride == columns) {
        touch_global_range(*c.on, *c.by, tile.at(0, 0), row_bytes * static_cast<std::size_t>(rows), made, how);
        return;
    }
    for (int row = 0; row < rows; ++row) {
        touch_global_range(*c.on, *c.by, tile.at(row, 0), row_bytes, made, how);
    }
}

// A contiguous object.
inline void touch_global_object(const context& c, const void* first, std::size_t bytes, const access& made,
                                global_use how) {
    if (!c.checked() || c.on->global == nullptr || !c.on->global->tracks(first)) return;
    touch_global_range(*c.on, *c.by, first, bytes, made, how);
}

// An ordinary access of the scope. `way` numbers the distribution over its warps, as for shared memory.
inline access ordinary_access(const context& c, int way, const void* first, int rows, int columns, const char* what,
                              source where) {
    access made{c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, what, where};
    if (way != 0) made.partition = partition_of(way, first, rows, columns, c.by->warps);
    return made;
}

// An ordinary access to a rectangle.
template <class T>
void touch_global_tile(const context& c, const global_tile<T>& tile, int rows, int columns, global_use how, int way,
                       const char* what, source where) {
    if (!c.checked()) return;
    access made = ordinary_access(c, way, tile.pointer, rows, columns, what, where);
    if (is_atomic(how)) made.atomic_bytes = sizeof(T);
    touch_global(c, tile, rows, columns, made, how);
}

// An ordinary access to some values.
template <class T>
void touch_global_values(const context& c, const T* first, int count, global_use how, int way, const char* what,
                         source where) {
    if (!c.checked() || count <= 0) return;
    access made = ordinary_access(c, way, first, 1, count, what, where);
    if (is_atomic(how)) made.atomic_bytes = sizeof(T);
    if (block_holding(*c.by, first) != nullptr) {  // it is shared memory, which has its own history
        touch(*c.on, *c.by, first, count * static_cast<int>(sizeof(T)), made, writes(how));
    } else {
        touch_global_object(c, first, static_cast<std::size_t>(count) * sizeof(T), made, how);
    }
}

// One row of a fragment at an address of its own. Equal rows at equal addresses are accessed by the same threads.
template <class T>
void touch_global_row(const context& c, const T* first, int count, global_use how, int row, const char* what,
                      source where) {
    touch_global_values(c, first, count, how, 16 + row, what, where);
}

// What the scope knows, as others may learn it.
inline void publish_to(simulated_warp& one, grid_clock& to, const grid_clock& others) {
    to.join(others);
    cluster_clocks& own = to.of(one.block->cluster->number);
    own.seen.join(one.knows.seen);
    own.async_seen.join(one.knows.global_async_seen);
}

// Learns what was published. The scope's own cluster is part of it.
inline void learn_from(simulated_warp& one, const grid_clock& from) {
    one.knows.grid.join(from);
    if (const cluster_clocks* own = from.find(one.block->cluster->number)) {
        one.knows.seen.join(own->seen);
        if (!own->async_seen.empty()) one.knows.global_async_seen.join(own->async_seen);
    }
}

inline bool within(memory_scope among, const simulated_warp& one, const simulated_warp& other) {
    if (among == memory_scope::block) return one.block == other.block;
    if (among == memory_scope::cluster) return one.block->cluster == other.block->cluster;
    return true;
}

// An atomic operation: its place in the history, and what it publishes and learns.
struct atomic_kind {
    memory_order order;
    memory_scope among;
    bool reads, writes;
};
inline void touch_atomic(const context& c, const void* address, int bytes, atomic_kind kind, const char* what,
                         source where) {
    if (!c.checked() || c.on->global == nullptr || !c.on->global->tracks(address)) return;
    simulated_warp& one = *c.by;
    if (releases(kind.order) &&
        c.on->pass_site(one, synchronisation::atomic_release, where) == mutation_operator::relaxed) {
        kind.order = acquires(kind.order) ? memory_order::acquire : memory_order::relaxed;
    }
    if (acquires(kind.order) &&
        c.on->pass_site(one, synchronisation::atomic_acquire, where) == mutation_operator::relaxed) {
        kind.order = releases(kind.order) ? memory_order::release : memory_order::relaxed;
    }
    access made = ordinary_access(c, 0, nullptr, 0, 0, what, where);
    made.atomic_bytes = bytes;
    atomic_state& state = c.on->global->atomics[address];
    const simulated_warp* other = state.last.by;
    if (other != nullptr && other->block != one.block) list_scopes_of(*c.on, state.last, made);
    if (c.on->operator_at(one, synchronisation::atomic_scope, where) == mutation_operator::block_scope) {
        kind.among = memory_scope::block;
    }
    if (other != nullptr && (!within(kind.among, one, *other) || !within(state.among, one, *other))) {
        c.on->report(hazard_kind::relaxed_publication, *one.block,
                     "atomic operations of several blocks at one address need memory_scope::device",
                     {c.on->location_of(made), c.on->location_of(state.last)});
    }
    if (kind.reads) {
        const bool late = other != nullptr && other->block->cluster->started_late;
        if (late && !one.block->cluster->started_late) report_not_resident(*c.on, one, where);
        one.knows.claimed.join(state.claimed);
        if (acquires(kind.order)) learn_from(one, state.released);
    }
    touch_global_range(*c.on, one, address, static_cast<std::size_t>(bytes), made,
                       !kind.writes ? global_use::atomic_load
                       : kind.reads ? global_use::atomic_update
                                    : global_use::atomic_store);
    if (kind.writes) {
        c.on->atomic_write();
        one.knows.seen.set(one.actor, one.tick);
        if (one.global_fenced > 0) one.knows.global_async_seen.set(one.actor, one.global_fenced);
        if (!kind.reads) state.released = {};  // a plain store begins a new release sequence
        if (releases(kind.order)) publish_to(one, state.released, one.knows.grid);
        publish_to(one, state.claimed, one.knows.claimed);
        state.claimed.join(one.knows.grid);
        state.last = made;
        state.among = kind.among;
    }
}

// The proxy fence for global memory: orders earlier writes that this scope made or knows before its later operations of
// the async proxy, and before those of scopes that synchronise with it.
template <class Scope>
void async_fence_global(const Scope& scope, source here) {
    const context c = enter(scope, "async fence for global memory", here);
    if (!c.checked()) return;
    if (c.on->pass_site(*c.by, synchronisation::async_fence, here) == mutation_operator::skip) return;
    simulated_warp& one = *c.by;
    one.global_fenced = one.tick;
    one.knows.global_async_seen.join(one.knows.seen);
    grid_clock fenced;
    one.knows.grid.for_each(
        [&](int cluster, const cluster_clocks& clocks) { fenced.of(cluster).async_seen = clocks.seen; });
    one.knows.grid.join(fenced);
}

}  // namespace imbrex::hw
