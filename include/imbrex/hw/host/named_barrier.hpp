// Named barriers and the cluster barrier in the host world. A named barrier has a number and an expected number of
// warps; some warps may arrive without waiting. Two groups must not use one barrier at the same time: an arriving warp
// must know that the previous phase is complete, or warps of the two groups could be counted together.
#pragma once

#include <imbrex/hw/host/scope.hpp>

namespace imbrex::hw {

inline void arrive_named(const context& c, named_barrier_state& state, int warps, const char* what, std::string name,
                         source here) {
    const auto now = [&] { return hazard_location{c.by->name(), what, here.file, here.line}; };
    const auto last = [&] {
        return hazard_location{state.last != nullptr ? state.last->name() : "no scope", "the previous arrival",
                               state.last_where.file, state.last_where.line};
    };
    if (state.arrived == 0) state.expected = warps;
    if (c.checked()) {
        if (state.actor < 0) state.actor = c.by->block->cluster->new_actor();
        if (state.expected != warps || state.arrived + c.by->warps > warps) {
            c.on->report(hazard_kind::named_barrier_conflict, *c.by->block,
                         str_cat(name, " expects ", state.expected, " warps; ", state.arrived, " have arrived, and ",
                                 c.by->warps, " more arrive expecting ", warps),
                         {now(), last()});
        }
        if (c.by->knows.phases[state.actor] < state.generation) {
            c.on->report(hazard_kind::named_barrier_conflict, *c.by->block,
                         str_cat(name, " is used again by a scope that does not know that its last use is complete"),
                         {now(), last()});
        }
        release(*c.by, state.gathering);
        ++c.by->tick;
    }
    c.on->progress();
    state.last = c.by;
    state.last_where = here;
    state.arrived += c.by->warps;
    state.ready_at = std::max(state.ready_at, c.by->time);
    if (state.arrived < state.expected) return;
    state.arrived = 0;
    ++state.generation;
    publish(state.gathering, state.completed, state.actor, state.generation);
}

inline void wait_named(const context& c, named_barrier_state& state, std::uint32_t before, std::string name,
                       source here) {
    c.on->wait_until(
        *c.by, [&state, before] { return state.generation != before; }, std::move(name), here, &state);
    if (c.on->trace.enabled()) {
        c.on->trace.record(c.by->block->number, c.by->name(), "wait", c.by->time, state.ready_at);
        c.by->time = std::max(c.by->time, state.ready_at);
    }
    if (!c.checked()) return;
    acquire(*c.by, state.completed);
    meet(*c.by);
}

inline constexpr int first_free_named_barrier = 9;  // tile/barrier.hpp

template <class Scope>
named_barrier_state& named(const context& c, const Scope&, int id, source here) {
    if (id < 0 || id > 15) {
        c.on->report(hazard_kind::beyond_limits, *c.by->block, str_cat("named barrier: ", id, "; must be 0 to 15"),
                     {{c.by->name(), "named barrier", here.file, here.line}});
    }
    if (c.checked() && id < first_free_named_barrier) {
        c.on->report(hazard_kind::named_barrier_conflict, *c.by->block,
                     str_cat("named barrier ", id, " belongs to the syncs of the block and its warpgroups; use ",
                             first_free_named_barrier, " to 15, by named_barriers<...>"),
                     {{c.by->name(), "named barrier", here.file, here.line}});
    }
    return c.by->block->named[id];
}

// Applies the mutation under test to a use of a named barrier.
inline bool skipped_or_miscounted(const context& c, synchronisation kind, int& warps, source here) {
    const mutation_operator applied = c.on->pass_site(*c.by, kind, here);
    if (applied == mutation_operator::fewer_warps) --warps;
    if (applied == mutation_operator::more_warps) ++warps;
    return applied == mutation_operator::skip;
}

// Syncs at barrier `id`, `warps` warps in all.
template <class Scope>
void named_sync(const Scope& scope, int id, int warps, source here = source::current()) {
    const context c = enter(scope, "named sync", here);
    if (!c) return;
    c.on->pause(*c.by);
    if (skipped_or_miscounted(c, synchronisation::named_sync, warps, here)) return;
    named_barrier_state& state = named(c, scope, id, here);
    const std::uint32_t before = state.generation;
    arrive_named(c, state, warps, "named sync", str_cat("named barrier ", id), here);
    wait_named(c, state, before, str_cat("the others at named barrier ", id), here);
}

// Arrives without waiting.
template <class Scope>
void named_arrive(const Scope& scope, int id, int warps, source here = source::current()) {
    const context c = enter(scope, "named arrive", here);
    if (!c) return;
    c.on->pause(*c.by);
    if (skipped_or_miscounted(c, synchronisation::named_arrive, warps, here)) return;
    arrive_named(c, named(c, scope, id, here), warps, "named arrive", str_cat("named barrier ", id), here);
}
template <class Scope>
void named_sync_and_arrive_if(const Scope& scope, int meet, int arrive, int warps, bool wanted,
                              source here = source::current()) {
    if (!wanted) return;
    named_sync(scope, meet, warps, here);
    named_arrive(scope, arrive, warps, here);
}

}  // namespace imbrex::hw

namespace imbrex {

template <int Warps, int Cluster>
void block_scope<Warps, Cluster>::cluster_sync(source here) const {
    const hw::context c = hw::enter(*this, "cluster sync", here);
    if (!c) return;
    c.on->pause(*c.by);
    if (c.on->pass_site(*c.by, synchronisation::cluster_sync, here) == mutation_operator::skip) return;
    hw::named_barrier_state& state = c.by->block->cluster->barrier;
    const std::uint32_t before = state.generation;
    if (c.checked()) {
        hw::meet(*c.by);
        hw::fence_for_cluster(*c.on, *c.by);
    }
    hw::arrive_named(c, state, Warps * Cluster, "cluster sync", "the cluster's barrier", here);
    hw::wait_named(c, state, before, "the other blocks of the cluster", here);
    if (c.checked()) hw::fence_for_cluster(*c.on, *c.by);
}

}  // namespace imbrex
