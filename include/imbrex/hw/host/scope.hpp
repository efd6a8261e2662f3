// The scopes of the host world: a warp, a warpgroup or a block is one simulated warp of the machine. Operations that
// fork (roles, each_warp) start simulated warps and wait for their end. The join does not order their accesses with
// what the block does next: on the device only a sync does, and the same holds here.
#pragma once

#include <imbrex/core/config.hpp>
#include <imbrex/core/grid_dim.hpp>
#include <imbrex/core/source.hpp>
#include <imbrex/hw/host/checker.hpp>
#include <imbrex/hw/host/machine.hpp>
#include <imbrex/hw/roles.hpp>

#include <string>

namespace imbrex::hw {

// The machine and the simulated warp of an operation. Empty while a run is being ended: operations called by
// destructors then do nothing.
struct context {
    machine* on = nullptr;
    simulated_warp* by = nullptr;
    explicit operator bool() const { return on != nullptr; }
    bool checked() const { return on != nullptr && on->checked; }
};

// The entry of every operation on registers: reports a scope that is not the caller's own.
template <class Scope>
context enter_registers(const Scope& scope, const char* what, source where) {
    machine* on = machine::running();
    simulated_warp* caller = machine::running_simulated_warp();
    if (on == nullptr || caller == nullptr) {
        throw error(str_cat(what, " at ", where.file, ":", where.line, " was called outside of a launched kernel"));
    }
    if (on->stopping() || on->unwinding()) return {};
    caller->last_operation = what;
    caller->last_where = where;
    if (scope.self != caller) {
        // The scope may have ended and hold anything.
        std::string owner = "no running scope";
        for (const auto& one : on->simulated_warps()) owner = one.get() == scope.self ? one->name() : owner;
        on->report(hazard_kind::wrong_scope, *caller->block,
                   str_cat("the scope passed belongs to ", owner, ", which does not run this line"),
                   {{caller->name(), what, where.file, where.line}});
    }
    return {on, caller};
}

// The entry of every other operation: also reports a collective that only some warps of the scope may reach.
template <class Scope>
context enter(const Scope& scope, const char* what, source where) {
    const context c = enter_registers(scope, what, where);
    if (c && c.on->events != nullptr) c.on->events->add(*c.by, what, where);
    if (c && c.by->divergence > 0) {
        c.on->report(hazard_kind::incomplete_collective, *c.by->block,
                     "only some warps of the scope may reach this line: each warp decides by its own rows",
                     {{c.by->name(), what, where.file, where.line}});
    }
    return c;
}

// On the device, marks a number as warp-uniform for the compiler.
inline int uniform(int number) {
    return number;
}

// A simulated warp must not have operations in flight when it ends.
inline void check_nothing_in_flight(machine& m, simulated_warp& one) {
    const auto check = [&](const group_queue& queue, const char* what) {
        if (queue.open == 0 && queue.waited >= queue.occupied) return;
        m.report(hazard_kind::in_flight_at_exit, *one.block, str_cat(what, " issued and not waited for"),
                 {{one.name(), what, queue.last_issue.file, queue.last_issue.line}});
    };
    check(one.copies, "asynchronous copies");
    check(one.stores, "asynchronous stores");
    check(one.mmas, "asynchronous mmas");
}

inline void end_fork(simulated_warp& one) {
    machine& m = *machine::running();
    if (!m.checked) return;
    check_nothing_in_flight(m, one);
    release(one, one.parent->clocks_of_children);
}

template <class Scope, class Body>
void run_forked(const void* body, simulated_warp& one) {
    Scope scope{&one, one.index < 0 ? 0 : one.index};
    (*static_cast<const Body*>(body))(scope);
    end_fork(one);
}

// Starts a simulated warp for `warps` of the parent's warps. A negative index means a role of one scope.
inline void fork(machine& m, simulated_warp& parent, const char* role, int index, int warps, warp_body body) {
    if (!parent.context) return m.run_in_place(*parent.block, &parent, role, index, warps, body);
    simulated_warp& child = m.start(*parent.block, &parent, role, index, warps, body);
    if (!m.checked) return;
    child.knows = parent.knows;
    // The child is a subset of the parent's warps: of the others it knows what came before their last sync.
    const bool alone = parent.warps == 1;
    child.knows.seen.set(parent.actor, alone ? parent.tick : parent.synced);
    child.knows.async_seen.set(parent.actor, alone ? parent.fenced : parent.async_synced);
    if (parent.global_fenced > 0) {
        child.knows.global_async_seen.set(parent.actor, alone ? parent.global_fenced : parent.global_async_synced);
    }
    for (const group_queue* own : parent.queues()) {
        child.knows.seen.set(own->actor, alone ? own->waited : own->synced);
    }
}
template <class Scope, class Body>
void fork(machine& m, simulated_warp& parent, const char* role, int index, const Body& body) {
    fork(m, parent, role, index, Scope::warps, {&body, &run_forked<Scope, Body>});
}

inline void wait_for_children(machine& m, simulated_warp& parent, source where) {
    m.wait_until(
        parent, [&parent] { return parent.children == 0; }, "its roles to end", where);
}

// A sync of all warps of one scope.
inline void sync_scope(const context& c, source where) {
    if (!c.checked()) return;
    c.on->pause(*c.by);
    if (c.on->pass_site(*c.by, synchronisation::scope_sync, where) == mutation_operator::skip) return;
    meet(*c.by);
}

// True in one thread of a scope.
template <class Scope>
bool elected(const Scope&) {
    return true;
}

}  // namespace imbrex::hw

namespace imbrex {

struct warp {
    static constexpr int warps = 1;
    static constexpr int threads = 32;
    static constexpr const char* name = "warp";

    hw::simulated_warp* self;
    int number;

    int index() const { return number; }
    // Its lanes are converged except for what each of them copies (checker.hpp).
    void sync(source here = source::current()) const {
        const hw::context c = hw::enter(*this, "warp sync", here);
        if (!c.checked()) return;
        if (c.by->copies.committed > 0) {
            hw::sync_scope(c, here);
        } else {
            hw::meet(*c.by);
        }
    }
};

struct warpgroup {
    static constexpr int warps = 4;
    static constexpr int threads = 128;
    static constexpr const char* name = "warpgroup";

    hw::simulated_warp* self;
    int number;

    int index() const { return number; }
    void sync(source here = source::current()) const { hw::sync_scope(hw::enter(*this, "warpgroup sync", here), here); }
};

template <int Warps, int Cluster = 1>
struct block_scope {
    static constexpr int warps = Warps;
    static constexpr int threads = Warps * 32;
    static constexpr int cluster_size = Cluster;
    static constexpr const char* name = "block";

    hw::simulated_warp* self;

    grid_dim index() const { return self->block->index; }
    grid_dim count() const { return self->block->count; }
    int cluster_rank() const { return self->block->cluster_rank; }

    void sync(source here = source::current()) const { hw::sync_scope(hw::enter(*this, "block sync", here), here); }

    // Syncs all blocks of the thread block cluster.
    void cluster_sync(source here = source::current()) const;

    template <class... Roles>
    void roles(const Roles&... parts) const {
        static_assert(warps_of_roles<Roles...> == Warps,
                      "imbrex: the roles of a kernel must take all of its warps (a role of single warps takes whole "
                      "warpgroups)");
        static_assert(registers_suffice<32 * Warps, Roles...>,
                      "imbrex: the roles' registers together must not be more than the block has at launch");
        const hw::context c = hw::enter(*this, "roles", source{});
        if (!c) return;
        (play(*c.on, *c.by, parts), ...);
        hw::wait_for_children(*c.on, *c.by, source{});
    }

    template <class Body>
    void each_warp(Body body, source here = source::current()) const {
        fork_all<warp>(Warps, "warp", body, here);
    }

    template <class Body>
    void each_warpgroup(Body body, source here = source::current()) const {
        static_assert(Warps % 4 == 0,
                      "imbrex: each_warpgroup needs a block of whole warpgroups: warps must be a multiple of 4");
        fork_all<warpgroup>(Warps / 4, "warpgroup", body, here);
    }

  private:
    template <class Role>
    static void play(hw::machine& m, hw::simulated_warp& block, const Role& part) {
        for (int i = 0; i < Role::count; ++i) {
            hw::fork<typename Role::scope>(m, block, part.name, Role::count == 1 ? -1 : i, part.body);
        }
    }
    template <class Scope, class Body>
    void fork_all(int count, const char* role, const Body& body, source here) const {
        const hw::context c = hw::enter(*this, "fork", here);
        if (!c) return;
        for (int i = 0; i < count; ++i) hw::fork<Scope>(*c.on, *c.by, role, i, body);
        hw::wait_for_children(*c.on, *c.by, here);
    }
};

}  // namespace imbrex
