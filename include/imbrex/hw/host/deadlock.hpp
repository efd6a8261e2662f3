// Reports of a machine in which no scope can proceed. If one scope's mistake explains a deadlock (a barrier that expects
// other bytes, a scope that ended without arriving), the report names that; otherwise where each scope waits and for
// what.
#pragma once

#include <imbrex/core/barrier_word.hpp>
#include <imbrex/hw/host/barrier_counters.hpp>
#include <imbrex/hw/host/machine.hpp>

#include <string>
#include <vector>

namespace imbrex::hw {

// A scope of any block, for a report.
inline std::string name_in_grid(const machine& m, const simulated_warp& one) {
    return m.clusters().size() > 1 ? name_with_block(one) : one.name();
}
inline hazard_location waiting_location(const machine& m, const simulated_warp& one) {
    return {name_in_grid(m, one), "waits for " + one.waiting_for, one.waiting_at.file, one.waiting_at.line};
}

inline const barrier_word* word_of(const machine& m, const void* state) {
    for (const auto& [word, one] : m.barriers) {
        if (&one == state) return word;
    }
    return nullptr;
}

// A barrier with all its arrivals that still expects bytes was armed with more than was copied.
inline void report_wrong_byte_count(machine& m) {
    for (const auto& [word, state] : m.barriers) {
        const barrier_counters counters = barrier_counters::of(*word);
        if (counters.pending != 0 || counters.bytes == 0) continue;
        m.report(hazard_kind::wrong_byte_count, *state.block,
                 str_cat("all copies have landed and the barrier still waits for ", counters.bytes, " bytes"),
                 {m.location_of(state.last_arrive), m.location_of(state.last_copy)});
    }
}

// Whether the scope could still arrive at what `waiting` waits for.
inline bool same_collective(const simulated_warp& waiting, const simulated_warp& other, bool of_cluster) {
    if (other.block->cluster != waiting.block->cluster) return false;
    return of_cluster || other.block == waiting.block;
}

// A barrier expects more warps than are left: a scope has ended without arriving.
inline void report_incomplete_collective(machine& m) {
    for (const simulated_warp* one : m.running_warps()) {
        if (!machine::stuck(*one) || one->waiting_on == nullptr) continue;
        const bool of_cluster = one->waiting_on == &one->block->cluster->barrier;
        const barrier_word* word = word_of(m, one->waiting_on);
        int missing = 0;
        if (word != nullptr) {
            missing = barrier_counters::of(*word).pending;
        } else {
            const auto& state = *static_cast<const named_barrier_state*>(one->waiting_on);
            missing = state.expected - state.arrived;
        }
        int left = 0;
        std::vector<hazard_location> locations{waiting_location(m, *one)};
        for (const auto& other : m.simulated_warps()) {
            if (other->waiting_on == one->waiting_on) continue;
            if (!same_collective(*one, *other, word != nullptr || of_cluster)) continue;
            // A warp may arrive more than once at a transaction barrier.
            if (machine::stuck(*other)) left += word != nullptr ? missing : other->warps;
            if (!other->finished()) continue;
            if (word != nullptr || of_cluster == (other->parent == nullptr)) {
                locations.push_back({other->name(), "has ended", "", 0});
            }
        }
        if (missing == 0 || left >= missing || locations.size() == 1) continue;
        m.report(hazard_kind::incomplete_collective, *one->block,
                 str_cat("warps still expected: ", missing, "; that could arrive: ", left), locations);
    }
}

inline void report_deadlock(machine& m) {
    std::vector<hazard_location> waiting;
    const block_state* block = m.clusters().front()->blocks.front();
    for (const simulated_warp* one : m.running_warps()) {
        if (!machine::stuck(*one)) continue;
        block = one->block;
        waiting.push_back(waiting_location(m, *one));
    }
    try {
        report_wrong_byte_count(m);
        report_incomplete_collective(m);
        m.report(hazard_kind::deadlock, *block, "no scope can proceed", waiting);
    } catch (const stopped&) {}
}

// A value came from a block that started only because others waited for it.
inline void report_not_resident(machine& m, const simulated_warp& one, source where) {
    m.report(hazard_kind::not_resident, *one.block,
             "the value came from a block that started only because this one waited; launch the grid cooperatively, or "
             "wait only for blocks that have started",
             {{one.name(), "wait for a value in global memory", where.file, where.line}});
}

inline void report_livelock(machine& m) {
    std::vector<hazard_location> spinning;
    const block_state* block = m.clusters().front()->blocks.front();
    for (const simulated_warp* one : m.running_warps()) {
        if (!machine::stuck(*one)) continue;
        block = one->block;
        spinning.push_back({name_in_grid(m, *one), str_cat("repeats ", one->last_operation), one->last_where.file,
                            one->last_where.line});
    }
    try {
        m.report(hazard_kind::deadlock, *block, "livelock: scopes spin and nothing else happens", spinning);
    } catch (const stopped&) {}
}

}  // namespace imbrex::hw
