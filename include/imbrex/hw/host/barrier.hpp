// Barriers of the host world: transaction barriers (mbarrier: arrivals and bytes, in phases), named barriers, the
// cluster barrier, and the proxy fence. In plain mode they only count. In checked mode they also carry the vector
// clocks by which one scope learns what another has done, and they report their own misuse.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/hw/host/barrier_counters.hpp>
#include <imbrex/hw/host/global_memory.hpp>
#include <imbrex/hw/host/named_barrier.hpp>
#include <imbrex/hw/host/scope.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::hw {

// The checker's state of a barrier; reports a barrier that is not ready for use.
inline barrier_state* state_in_use(const context& c, const barrier_word& word, const char* what, source where) {
    machine& m = *c.on;
    const access made{c.by, c.by->actor, c.by->tick, false, false, -1, 0, what, where};
    const auto found = m.barriers.find(&word);
    if (found == m.barriers.end() || barrier_counters::of(word).live != barrier_counters::live_mark) {
        m.report(hazard_kind::barrier_not_initialised, *c.by->block,
                 "the barrier was never initialised, or was invalidated", {m.location_of(made)});
    }
    barrier_state& state = found->second;
    if (!state.init_fenced) {
        m.report(hazard_kind::barrier_not_initialised, *c.by->block,
                 "the barrier's initialisation was not followed by its fence",
                 {m.location_of(made), m.location_of(state.init)});
    }
    if (check_ordering(state.init, true, *c.by, made) != verdict::ordered) {
        m.report(hazard_kind::barrier_not_initialised, *c.by->block,
                 "no sync between the barrier's initialisation and this use",
                 {m.location_of(made), m.location_of(state.init)});
    }
    return &state;
}

// The current phase is complete: waits may learn the gathered clocks.
inline void complete_phase(barrier_state& state) {
    ++state.generation;
    publish(state.gathering, state.completed, state.actor, state.generation);
    state.ready_at = state.gathering_ready;
    state.gathering_ready = 0;
}

inline double& ready_time(machine& m, const barrier_word& word) {
    return m.barriers[&word].gathering_ready;
}

// The number of other barriers of this block initialised on this line: a pipeline initialises all of its barriers on
// one.
inline int initialised_at(const context& c, const barrier_word& word, source here) {
    int count = 0;
    for (const auto& [other, state] : c.on->barriers) {
        if (other == &word || state.block != c.by->block) continue;
        count += state.init.where.line == here.line && std::strcmp(state.init.where.file, here.file) == 0;
    }
    return count;
}

// A barrier may be invalidated only when its last phase is complete and known to be.
inline void check_not_in_use(const context& c, const barrier_word& word, const access& made) {
    const auto found = c.on->barriers.find(&word);
    if (found == c.on->barriers.end()) return;
    const barrier_state& state = found->second;
    const barrier_counters counters = barrier_counters::of(word);
    const bool idle = counters.pending == counters.expected && counters.bytes == 0;
    if (idle && c.by->knows.phases[state.actor] >= state.generation) return;
    c.on->report(hazard_kind::barrier_not_initialised, *c.by->block,
                 "the barrier is initialised again, or invalidated, while in use",
                 {c.on->location_of(made), c.on->location_of(state.last_arrive)});
}

// mbarrier.init on a valid mbarrier is undefined in PTX.
inline void check_not_valid(const context& c, const barrier_word& word, const access& made) {
    check_not_in_use(c, word, made);
    const auto found = c.on->barriers.find(&word);
    if (found == c.on->barriers.end()) return;
    c.on->report(hazard_kind::barrier_not_initialised, *c.by->block,
                 "the barrier is initialised again without invalidate",
                 {c.on->location_of(made), c.on->location_of(found->second.init)});
}

// Ends the use of a barrier: its memory may then hold data, or a barrier again. A sync must follow.
template <class Scope>
void barrier_invalidate(const Scope& scope, barrier_word& word, source here = source::current()) {
    const context c = enter(scope, "barrier invalidate", here);
    if (!c.checked()) return;
    const access made{c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, "barrier invalidate", here};
    state_in_use(c, word, "barrier invalidate", here);
    check_not_in_use(c, word, made);
    c.on->barriers.erase(&word);
}

// One thread initialises a barrier for phases of `warps` arriving warps.
template <class Scope>
void barrier_init(const Scope& scope, barrier_word& word, int warps, source here = source::current()) {
    const context c = enter(scope, "barrier init", here);
    if (!c) return;
    int counted = warps;
    if (c.checked()) {
        const mutation_operator applied =
            c.on->pass_site(*c.by, synchronisation::barrier_init, here, initialised_at(c, word, here));
        if (applied == mutation_operator::skip) return;
        if (applied == mutation_operator::fewer_warps) --counted;
        if (applied == mutation_operator::more_warps) ++counted;
        const access made{c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, "barrier init", here};
        if (warps < 1 || warps > 64) {
            c.on->report(hazard_kind::beyond_limits, *c.by->block,
                         str_cat("warps of a barrier: ", warps, "; must be 1 to 64"), {c.on->location_of(made)});
        }
        check_not_valid(c, word, made);
        block_state* const block = block_holding(*c.by, &word);
        if (block == nullptr) {
            c.on->report(hazard_kind::beyond_limits, *c.by->block, "the barrier is not in shared memory",
                         {c.on->location_of(made)});
        }
        barrier_state& state = c.on->barriers[&word];
        state = barrier_state{};
        state.actor = c.by->block->cluster->new_actor();
        state.block = block;
        state.init = made;
        state.init.stage = stage_of(*c.by->block, &word);
    } else if (c.on->trace.enabled()) {
        c.on->barriers[&word] = barrier_state{};
    }
    barrier_counters{0, static_cast<std::uint8_t>(counted), static_cast<std::uint8_t>(counted), 0,
                     barrier_counters::live_mark}
        .put(word);
}

// Makes this scope's initialised barriers visible to TMA and the cluster; a sync must follow.
template <class Scope>
void barrier_init_fence(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "barrier init fence", here);
    if (!c.checked()) return;
    if (c.on->pass_site(*c.by, synchronisation::barrier_init_fence, here) == mutation_operator::skip) return;
    ++c.by->tick;
    for (auto& [word, state] : c.on->barriers) {
        if (state.init.by != c.by || state.init_fenced) continue;
        state.init_fenced = true;
        state.init.tick = c.by->tick;  // the sync must follow the fence
    }
}

// Counts `warps` arrivals and `bytes` more expected bytes.
inline void arrive(const context& c, barrier_word& word, int warps, int bytes, const char* what, source here) {
    barrier_counters counters = barrier_counters::of(word);
    barrier_state* state = nullptr;
    if (c.checked()) {
        state = state_in_use(c, word, what, here);
        const access made{c.by, c.by->actor, ++c.by->tick, false, false, stage_of(*state->block, &word), 0, what, here};
        if (counters.pending < warps || c.by->knows.phases[state->actor] < state->generation) {
            c.on->report(hazard_kind::arrived_too_often, *c.by->block,
                         counters.pending < warps ? str_cat("the phase counts ", static_cast<int>(counters.expected),
                                                            " warps and all of them have arrived")
                                                  : "this scope does not know that the previous phase is complete",
                         {c.on->location_of(made), c.on->location_of(state->last_arrive)});
        }
        state->last_arrive = made;
        release(*c.by, state->gathering);
    }
    c.on->progress();
    counters.pending = static_cast<std::uint8_t>(counters.pending - warps);
    counters.bytes += bytes;
    if (c.on->trace.enabled()) {
        double& ready = ready_time(*c.on, word);
        ready = std::max(ready, c.by->time);
    }
    if (counters.turn() && (state != nullptr || c.on->trace.enabled())) complete_phase(c.on->barriers[&word]);
    counters.put(word);
}

// Each warp of the scope arrives once.
template <class Scope>
void barrier_arrive(const Scope& scope, barrier_word& word, source here = source::current()) {
    const context c = enter(scope, "barrier arrive", here);
    if (!c) return;
    c.on->pause(*c.by);
    const mutation_operator applied = c.on->pass_site(*c.by, synchronisation::barrier_arrive, here);
    if (applied == mutation_operator::skip) return;
    arrive(c, word, Scope::warps, 0, "barrier arrive", here);
    if (applied == mutation_operator::twice) arrive(c, word, Scope::warps, 0, "barrier arrive", here);
}

// The address of a shared object of this block in another block of the cluster.
template <class T>
T& in_cluster(const context& c, T& object, int cluster_rank, const char* what, source here) {
    machine& m = *c.on;
    const std::vector<block_state*>& cluster = c.by->block->cluster->blocks;
    const auto* address = reinterpret_cast<const unsigned char*>(&object);
    const std::ptrdiff_t offset = address - c.by->block->memory;
    const auto now = [&] { return hazard_location{c.by->name(), what, here.file, here.line}; };
    if (cluster_rank < 0 || cluster_rank >= static_cast<int>(cluster.size())) {
        m.report(hazard_kind::beyond_limits, *c.by->block,
                 str_cat("cluster rank ", cluster_rank, " of a cluster of ", cluster.size()), {now()});
    }
    block_state& other = *cluster[cluster_rank];
    if (c.checked() && other.finished) {
        m.report(hazard_kind::in_flight_at_exit, *c.by->block,
                 str_cat("block ", cluster_rank, " of the cluster has already exited"), {now()});
    }
    return *reinterpret_cast<T*>(other.memory + offset);
}

// A block's shared memory ends with it: it must know that the arrivals and loads of other blocks there are
// complete.
// (Their copies land on its own barriers and are checked with those.)
inline void check_remote_arrivals_over(machine& m, simulated_warp& block) {
    for (const access& use : block.block->remote_uses) {
        if (use.tick <= block.knows.seen[use.actor] || use.tick <= block.clocks_of_children.seen[use.actor]) continue;
        m.report(hazard_kind::in_flight_at_exit, *block.block,
                 "the block exits while another block of its cluster may still use its shared memory",
                 {{block.name(), "end of the kernel", "", 0}, m.location_of(use)});
    }
}

// A block that is used must not exit before `use` is complete.
inline void keep_until_over(block_state& used, const access& use) {
    std::erase_if(used.remote_uses, [&](const access& old) { return old.actor == use.actor; });
    used.remote_uses.push_back(use);
}

// A use of another block's shared memory, which must not end before it.
inline void remember_remote_use(const context& c, block_state& other, const char* what, source here) {
    if (!c.checked() || &other == c.by->block) return;
    keep_until_over(other, {c.by, c.by->actor, ++c.by->tick, false, false, -1, 0, what, here});
}

// The same if `wanted`.
template <class Scope>
void barrier_arrive_if(const Scope& scope, barrier_word& word, bool wanted, source here = source::current()) {
    if (wanted) barrier_arrive(scope, word, here);
}

// The same at the barrier at this address in another block of the cluster.
template <class Scope>
void barrier_arrive_at(const Scope& scope, barrier_word& word, int cluster_rank, source here = source::current()) {
    const context c = enter(scope, "remote barrier arrive", here);
    if (!c) return;
    c.on->pause(*c.by);
    const mutation_operator applied = c.on->pass_site(*c.by, synchronisation::barrier_arrive, here);
    if (applied == mutation_operator::skip) return;
    barrier_word& remote = in_cluster(c, word, cluster_rank, "remote barrier arrive", here);
    block_state& other = *c.by->block->cluster->blocks[cluster_rank];
    remember_remote_use(c, other, "remote barrier arrive", here);
    arrive(c, remote, Scope::warps, 0, "remote barrier arrive", here);
    if (applied == mutation_operator::twice) arrive(c, remote, Scope::warps, 0, "remote barrier arrive", here);
}

// Each warp of the scope arrives, and together they add the bytes that the phase must also wait for.
template <class Scope>
void barrier_expect(const Scope& scope, barrier_word& word, int bytes, source here = source::current()) {
    const context c = enter(scope, "barrier expect", here);
    if (!c) return;
    c.on->pause(*c.by);
    const mutation_operator applied = c.on->pass_site(*c.by, synchronisation::barrier_expect, here);
    if (applied == mutation_operator::skip) return;
    if (applied == mutation_operator::fewer_bytes) bytes -= 16;
    if (applied == mutation_operator::more_bytes) bytes += 16;
    arrive(c, word, Scope::warps, bytes, "barrier expect", here);
    if (applied == mutation_operator::twice) arrive(c, word, Scope::warps, bytes, "barrier expect", here);
}

// Waits until phase number `phase`, counted from 0, is complete. The hardware tests only its parity; the checker knows
// which phase was meant. Phase -1 is always complete: a producer thus finds every stage empty at first.
template <class Scope>
void barrier_wait(const Scope& scope, barrier_word& word, unsigned phase, source here = source::current()) {
    const context c = enter(scope, "barrier wait", here);
    if (!c) return;
    c.on->pause(*c.by);
    const mutation_operator applied = c.on->pass_site(*c.by, synchronisation::barrier_wait, here);
    if (applied == mutation_operator::skip) return;
    if (applied == mutation_operator::other_phase) phase ^= 1;
    barrier_state* state = c.checked() ? state_in_use(c, word, "barrier wait", here) : nullptr;
    // The hardware tests the parity alone; a phase that two later ones have overtaken would wait forever.
    const auto complete = [&word, phase, state] {
        const bool overtaken = state != nullptr && phase != 0xffffffffu && state->generation > phase + 1;
        return overtaken || barrier_counters::of(word).parity != (phase & 1);
    };
    if (!complete()) {
        std::string what = "a phase of a transaction barrier";
        if (c.checked()) {
            what = str_cat("phase ", static_cast<int>(phase), " of the barrier at byte ",
                           reinterpret_cast<unsigned char*>(&word) - state->block->memory, " of shared memory");
            const int stage = stage_of(*state->block, &word);
            if (stage >= 0) what += str_cat(", stage ", stage);
        }
        c.on->wait_until(*c.by, complete, std::move(what), here, state);
    }
    if (state != nullptr) {
        if (state->generation != phase + 1) {
            c.on->report(hazard_kind::wrong_phase, *c.by->block,
                         str_cat("waited for phase ", static_cast<int>(phase), " when ", state->generation,
                                 " phases were complete"),
                         {{c.by->name(), "barrier wait", here.file, here.line, stage_of(*state->block, &word)},
                          c.on->location_of(state->last_arrive)});
        }
        acquire(*c.by, state->completed);
        ++c.by->tick;
    }
    if (c.on->trace.enabled()) {
        const double ready = c.on->barriers[&word].ready_at;
        c.on->trace.record(c.by->block->number, c.by->name(), "wait", c.by->time, ready);
        c.by->time = std::max(c.by->time, ready);
    }
}
// On the device this keeps lanes converged; here a scope always is.
template <class Scope>
void barrier_wait_converged(const Scope& scope, barrier_word& word, unsigned phase, source here = source::current()) {
    barrier_wait(scope, word, phase, here);
}
template <class Scope>
void barrier_wait_converged_if(const Scope& scope, barrier_word& word, unsigned phase, bool wanted,
                               source here = source::current()) {
    if (wanted) barrier_wait(scope, word, phase, here);
}

// Makes ordinary shared writes of this scope visible to the async proxy, once a barrier follows.
template <class Scope>
void async_fence(const Scope& scope, source here = source::current()) {
    const context c = enter(scope, "async fence", here);
    if (!c.checked()) return;
    if (c.on->pass_site(*c.by, synchronisation::async_fence, here) == mutation_operator::skip) return;
    c.by->fenced = c.by->tick;
    c.by->fenced_copies = c.by->copies.waited;
    if (Scope::warps == 1) c.by->knows.async_seen.raise(c.by->copies.actor, c.by->fenced_copies);
}

// Memory in place of a stage that a handle has released: it is no shared memory, so that every access is reported.
template <class Item>
Item& released_stage(source released_at) {
    static_assert(sizeof(Item) <= released_memory::bytes, "imbrex: a stage must fit into shared memory");
    if (simulated_warp* const one = machine::running_simulated_warp()) one->released_at = released_at;
    return *reinterpret_cast<Item*>(released_memory::first());
}

// The release of a stage by a handle that holds none, if `wanted`.
template <class Scope>
void release_without_stage(const Scope& scope, bool wanted, source released_at, source here) {
    const context c = enter(scope, "conditional release", here);
    if (!c || !wanted) return;
    c.on->report(hazard_kind::used_after_release, *c.by->block, "the handle holds no stage",
                 {{c.by->name(), "conditional release", here.file, here.line},
                  {c.by->name(), "the release, or the move of the handle", released_at.file, released_at.line}});
}

// Tells the checker which bytes are a stage of a pipeline, for its reports.
inline void label_stage(const context& c, const void* begin, int bytes, int stage) {
    if (!c.checked()) return;
    const auto* first = static_cast<const unsigned char*>(begin);
    c.by->block->stages.push_back({first, first + bytes, stage});
}
template <class Scope>
void label_stage(const Scope& scope, const void* begin, int bytes, int stage, source here = source::current()) {
    label_stage(enter(scope, "label", here), begin, bytes, stage);
}

}  // namespace imbrex::hw
