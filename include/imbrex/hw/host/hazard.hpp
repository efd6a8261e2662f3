// Hazards: the synchronisation errors that the checker finds. A hazard names the broken rule, the two accesses (the one
// caught and the earlier one that it conflicts with) with scope and source line, the pipeline stage, the block, and the
// seed that replays the schedule. docs/memory_model.md explains each rule.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex {

enum class hazard_kind {
    read_before_landed,       // a tile read before its copy has landed and this scope has waited for it
    overwritten_in_flight,    // a tile written while a copy, an mma or a store may still use it
    refilled_before_release,  // a copy into a tile that another scope may still read
    accumulator_in_flight,    // a register tile accessed while an asynchronous mma uses it
    missing_proxy_fence,      // ordinary writes read by TMA or wgmma without a proxy fence and a barrier in between
    race,                     // two scopes access the same bytes, one writes, and nothing orders them
    unsynchronised_scope,     // the warps of one scope access each other's bytes without a sync in between
    wrong_byte_count,         // a barrier expects other bytes than land on it
    arrived_too_often,        // more arrivals in a phase than the barrier expects
    wrong_phase,              // a wait for a phase that is not the next to complete
    barrier_not_initialised,  // a barrier used before its initialisation, or initialised while in use
    named_barrier_conflict,   // a named barrier used by two groups at once
    incomplete_collective,    // a collective that not all members reach
    wrong_scope,              // a collective called at the wrong scope
    uninitialised_read,       // a read of bytes or registers that were never written
    beyond_limits,            // coordinates, alignment, strides or shared memory beyond the hardware's limits
    in_flight_at_exit,        // the kernel ends with copies or mmas in flight
    deadlock,                 // no scope can proceed
    used_after_release,       // a pipeline stage accessed through a handle that no longer holds it
    outside_tile,             // a subtile or an element that is not inside its shared tile, vector or view
    not_resident,             // a block waits for a block that need not be resident
    relaxed_publication,      // a relaxed atomic operation, or one of too small a scope, publishes data
    before_pdl_wait,          // an access before pdl_wait that conflicts with the previous kernel
    contradictory_mask,       // the claims of an attention mask contradict its `keep`
};

inline const char* name_of(hazard_kind kind) {
    switch (kind) {
        case hazard_kind::read_before_landed:
            return "read before the copy landed";
        case hazard_kind::overwritten_in_flight:
            return "overwritten while in use by an asynchronous operation";
        case hazard_kind::refilled_before_release:
            return "refilled before its release";
        case hazard_kind::accumulator_in_flight:
            return "register tile accessed while its mma is in flight";
        case hazard_kind::missing_proxy_fence:
            return "missing proxy fence";
        case hazard_kind::race:
            return "race";
        case hazard_kind::unsynchronised_scope:
            return "unsynchronised scope";
        case hazard_kind::wrong_byte_count:
            return "wrong byte count";
        case hazard_kind::arrived_too_often:
            return "arrived too often";
        case hazard_kind::wrong_phase:
            return "wrong phase";
        case hazard_kind::barrier_not_initialised:
            return "barrier not initialised";
        case hazard_kind::named_barrier_conflict:
            return "named barrier used by two groups";
        case hazard_kind::incomplete_collective:
            return "incomplete collective";
        case hazard_kind::wrong_scope:
            return "wrong scope";
        case hazard_kind::uninitialised_read:
            return "uninitialised read";
        case hazard_kind::beyond_limits:
            return "beyond the hardware's limits";
        case hazard_kind::in_flight_at_exit:
            return "operations in flight at exit";
        case hazard_kind::deadlock:
            return "deadlock";
        case hazard_kind::used_after_release:
            return "stage used after its release";
        case hazard_kind::outside_tile:
            return "outside its tile";
        case hazard_kind::not_resident:
            return "waits for a block that need not be resident";
        case hazard_kind::relaxed_publication:
            return "data published by a relaxed atomic operation";
        case hazard_kind::before_pdl_wait:
            return "conflict with the previous kernel before pdl_wait";
        case hazard_kind::contradictory_mask:
            return "the mask contradicts itself";
    }
    return "unknown";
}

// One access of a hazard: scope, operation and source location.
struct hazard_location {
    std::string who;
    std::string what;
    std::string file;
    int line = 0;
    int stage = -1;  // of a pipeline, if the bytes belong to one

    std::string text() const {
        std::string out = who + ": " + what;
        if (stage >= 0) out += ", stage " + std::to_string(stage);
        if (line > 0) out += ", at " + file + ":" + std::to_string(line);
        return out;
    }
};

struct hazard {
    hazard_kind kind;
    std::string kernel;
    grid_dim block;
    std::uint64_t seed = 0;
    std::string detail;
    std::vector<hazard_location> locations;  // the access that was caught, then the one it conflicts with
    std::string scheduler = {};              // the options that replay it beside the seed
    std::string replay = {};                 // the schedule as decisions (hw/host/decisions.hpp), if it was shrunk
    std::string shrunk = {};                 // and what these are
    std::string timeline = {};               // the last events of the two scopes

    std::string text() const {
        std::string out = str_cat("hazard: ", name_of(kind), "\n  kernel ", kernel, ", block (", block.x, ", ", block.y,
                                  ", ", block.z, ")\n");
        if (!detail.empty()) out += "  " + detail + "\n";
        for (const hazard_location& location : locations) out += "  - " + location.text() + "\n";
        if (!timeline.empty()) out += "  timeline\n" + timeline;
        out += str_cat("  replay: launch it checked with seed ", seed, scheduler, "\n");
        if (!replay.empty()) out += str_cat("  or with replay \"", replay, "\"", shrunk, "\n");
        return out;
    }
};

// The report of a check, or an empty text. In a test: CHECK(hazard_text(attention::check(problem)) == "").
inline std::string hazard_text(const std::optional<hazard>& found) {
    return found ? found->text() : std::string();
}

// Thrown by a checked launch that finds a hazard.
class hazard_error : public error {
  public:
    explicit hazard_error(hazard found) : error(found.text()), found_(std::move(found)) {}
    const hazard& reported_hazard() const { return found_; }

  private:
    hazard found_;
};

}  // namespace imbrex
