// Bulk copies of a contiguous object by TMA, in the host world.
#pragma once

#include <imbrex/hw/host/tma.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace imbrex::hw {

// Issues a later write of an object of shared memory by `fill`, whose bytes land on the barrier.
template <class T, class Fill>
void ask_object(const context& c, T& to, barrier_word& word, const char* what, source here, Fill fill,
                bool dsmem_store = false) {
    access made{c.by, -1, 0, true, true, -1, 0, what, here};
    made.dsmem_store = dsmem_store;
    std::uint32_t generation = 0;
    if (c.checked()) {
        check_alignment(c, &to, 16, what, here);
        barrier_state& state = *state_in_use(c, word, what, here);
        generation = state.generation;
        made.actor = state.actor;
        made.tick = generation + 1;
        touch(*c.on, *c.by, &to, sizeof(T), made, true);
        std::memset(static_cast<void*>(&to), 0xff, sizeof(T));
        made.stage = stage_of(*state.block, &to);
        state.bound = generation + 1;
        state.last_copy = made;
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        c.by->time += nominal_rates::issue;
        const double end = c.by->block->tma.serve(c.by->time, sizeof(T) / nominal_rates::copy_bytes, begin);
        c.on->trace.record(c.by->block->number, "TMA", what, begin, end);
        double& ready = ready_time(*c.on, word);
        ready = std::max(ready, end + nominal_rates::copy_latency);
    }
    machine& m = *c.on;
    m.ask(nullptr, 0, [&m, &to, &word, fill, generation, made, phases = c.by->knows.phases] {
        fill(to);
        if (m.checked) m.barriers[&word].gathering.phases.join(phases);
        land(m, word, sizeof(T), generation, made);
    });
}

template <class T>
void bulk_load(const warp& scope, T& to, const T& from, barrier_word& word, source here = source::current()) {
    const char* what = "bulk load";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    if (c.checked()) {
        const barrier_state& state = *state_in_use(c, word, what, here);
        const access made{c.by, state.actor, state.generation + 1, true, true, -1, 0, what, here};
        check_global_alignment(c, &from, 16, what, here);
        touch_global_object(c, &from, sizeof(T), made, global_use::read);
    }
    ask_object(c, to, word, what, here,
               [&from](T& there) { std::memcpy(static_cast<void*>(&there), &from, sizeof(T)); });
}

// Adds an object of floats to global memory, each atomically. In a fixed order it counts as a write.
template <summation_order Order, class Scope, class T>
void bulk_reduce_add(const Scope& scope, T& to, const T& from, source here = source::current()) {
    const char* what = "bulk reduce-add";
    const context c = enter(scope, what, here);
    if (!c) return;
    c.on->pause(*c.by);
    group_queue& queue = c.by->stores;
    if (c.checked()) {
        check_alignment(c, &from, 16, what, here);
        check_global_alignment(c, &to, 16, what, here);
        const access made{c.by, queue.actor, queue.open_tick(), true, true, -1, 0, what, here};
        touch(*c.on, *c.by, &from, sizeof(T), made, false);
        access written = made;
        written.actor = c.by->written.actor;
        if (Order == summation_order::any) written.atomic_bytes = sizeof(float);
        touch_global_object(c, &to, sizeof(T), written,
                            Order == summation_order::any ? global_use::atomic_update : global_use::write);
        ++queue.open;
        queue.last_issue = here;
    }
    if (c.on->trace.enabled()) {
        double begin = 0;
        const double asked = c.by->time += nominal_rates::issue;
        queue.done_at = c.by->block->tma.serve(asked, sizeof(T) / nominal_rates::copy_bytes, begin);
        c.on->trace.record(c.by->block->number, "TMA", what, begin, queue.done_at);
    }
    c.on->ask(&queue, queue.open_tick(), [&to, &from] {
        float* const sums = reinterpret_cast<float*>(&to);
        const float* const values = reinterpret_cast<const float*>(&from);
        for (std::size_t i = 0; i < sizeof(T) / sizeof(float); ++i) detail::atomic_add(sums + i, values[i]);
    });
}

}  // namespace imbrex::hw
