// The options of a launch in the host world.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/decisions.hpp>
#include <imbrex/hw/host/mutation.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace imbrex {

enum class host_mode {
    plain,    // asynchronous operations complete at once, blocks run on all cores
    checked,  // they complete in an order drawn from the seed, and every access is checked
};

// How the seed of a checked run determines the order of scopes and of completions.
enum class scheduling {
    random,  // drawn uniformly among those that can run
    pct,     // by random priorities that change at a few random steps (hw/host/pct.hpp)
};

// Bytes of global memory.
struct memory_range {
    const void* first = nullptr;
    std::size_t bytes = 0;

    std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(first); }
    std::uintptr_t end() const { return begin() + bytes; }
};

struct host_options {
    host_mode mode = host_mode::plain;
    std::uint64_t seed = 0;
    int threads = 0;                                     // OS threads in plain mode; 0: all cores
    std::optional<mutation> mutate = std::nullopt;       // checked mode: mutate one synchronisation
    std::vector<synchronisation_site>* sites = nullptr;  // checked mode: collects the synchronisations passed
    std::string trace_file = {};                         // writes a Chrome/Perfetto trace here
    bool track_global_memory = true;                     // checked mode
    std::vector<memory_range> uninitialised = {};        // global memory whose contents are undefined
    std::vector<memory_range> exempt = {};               // global memory that is not checked
    scheduling scheduler = scheduling::random;           // checked mode
    int bug_depth = 3;                                   // PCT: one more than the number of priority changes
    int pct_steps = 0;                                   // PCT: the steps to expect; 0: no priority changes
    std::string replay = {};                             // checked mode: the schedule of a report, instead of a seed
    int most_steps = 0;                                  // checked mode: more are a livelock; 0: no limit
    bool timeline = false;                               // checked mode: a hazard shows the last events
    schedule_record* record = nullptr;                   // checked mode: describes the schedule that was run

    bool records_timeline() const {
        return mode == host_mode::checked && (timeline || !replay.empty() || !trace_file.empty());
    }
    // The options that determine the schedule beside the seed, for a report.
    std::string scheduler_text() const {
        if (scheduler == scheduling::random) return "";
        return str_cat(", scheduler pct, bug_depth ", bug_depth, ", pct_steps ", pct_steps);
    }
};

}  // namespace imbrex
