// What the checker can find, and how it tells it. A hazard names the rule that was broken, the two places that broke it
// (the access, and the earlier one it collides with), who did each, the pipeline stage, the block and the seed that
// replays the schedule. docs/memory_model.md explains each rule for people.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/core/grid_dim.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace imbrex {

enum class hazard_kind {
    read_before_landed,       // a tile read before its copy has landed and this scope has waited for it
    overwritten_in_flight,    // a tile written while a copy, an mma or a store may still use it
    refilled_before_release,  // a copy into a tile that another scope may still read
    accumulator_in_flight,    // a register tile touched while an asynchronous mma uses it
    missing_proxy_fence,      // ordinary writes read by TMA or wgmma with no proxy fence and barrier between
    race,                     // two scopes touch the same bytes, one writes, and nothing orders them
    unsynchronised_scope,     // the warps of one scope touch each other's bytes with no sync between
    wrong_byte_count,         // a barrier armed with other bytes than land on it
    arrived_too_often,        // more arrivals in a phase than the barrier counts
    wrong_phase,              // a wait for a phase that is not the next to complete
    barrier_not_initialised,  // a barrier used before it was initialised, or initialised while in use
    named_barrier_conflict,   // a named barrier used by two parties at once
    incomplete_collective,    // a collective that not all members reach
    wrong_scope,              // a collective reached at the wrong scope
    uninitialised_read,       // a read of what was never written
    beyond_limits,            // coordinates, alignment, strides or shared memory beyond the hardware's limits
    in_flight_at_exit,        // leaving the kernel with copies or mmas in flight
    deadlock,                 // nobody can go on
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
            return "register tile touched while its mma is in flight";
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
            return "named barrier used by two parties";
        case hazard_kind::incomplete_collective:
            return "incomplete collective";
        case hazard_kind::wrong_scope:
            return "wrong scope";
        case hazard_kind::uninitialised_read:
            return "uninitialised read";
        case hazard_kind::beyond_limits:
            return "beyond the hardware's limits";
        case hazard_kind::in_flight_at_exit:
            return "left with operations in flight";
        case hazard_kind::deadlock:
            return "deadlock";
    }
    return "unknown";
}

// One of the two places of a hazard: who did what, where in the source.
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
    std::vector<hazard_location> locations;  // the access that was caught first, then the one it collides with

    std::string text() const {
        std::string out = str_cat("hazard: ", name_of(kind), "\n  kernel ", kernel, ", block (", block.x, ", ", block.y,
                                  ", ", block.z, ")\n");
        if (!detail.empty()) out += "  " + detail + "\n";
        for (const hazard_location& location : locations) out += "  - " + location.text() + "\n";
        return out + str_cat("  replay: launch it checked with seed ", seed, "\n");
    }
};

// Thrown by a checked launch whose kernel is not right.
class hazard_error : public error {
  public:
    explicit hazard_error(hazard found) : error(found.text()), found_(std::move(found)) {}
    const hazard& reported_hazard() const { return found_; }

  private:
    hazard found_;
};

}  // namespace imbrex
