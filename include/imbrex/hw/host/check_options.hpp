// The options of a check: which schedules to run, and what it should know of global memory. A summary tells how many
// schedules it ran and, with PCT, the probability with which they show a bug.
#pragma once

#include <imbrex/core/error.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/host/pct.hpp>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace imbrex::host {

// What a check has run.
struct check_summary {
    int schedules = 0;
    scheduling scheduler = scheduling::random;
    int bug_depth = 0;
    int threads = 0;  // scopes, queues of operations, operations without a queue: the most in one kernel
    int steps = 0;    // the most in one kernel

    // With PCT: the least probability that a bug of this depth shows in one schedule, and in all of them.
    double bound() const { return scheduler == scheduling::pct ? pct_bound(threads, steps, bug_depth) : 0; }
    double probability() const {
        return scheduler == scheduling::pct ? pct_probability(threads, steps, bug_depth, schedules) : 0;
    }

    std::string text() const {
        if (scheduler == scheduling::random) return str_cat(schedules, " random schedules");
        char numbers[80];
        std::snprintf(numbers, sizeof(numbers), "%.3g per schedule, %.3g in all", bound(), probability());
        return str_cat(schedules, " PCT schedules of at most ", threads, " threads and ", steps,
                       " steps; probability to show a bug of depth ", bug_depth, ": at least ", numbers);
    }
};

struct check_options {
    int schedules = 1000;
    std::uint64_t first_seed = 0;
    bool track_global_memory = true;
    std::vector<memory_range> uninitialised = {};  // memory whose contents are undefined, such as a workspace
    std::vector<memory_range> exempt = {};         // memory that is not checked
    scheduling scheduler = scheduling::random;
    int bug_depth = 3;                 // of the bugs that PCT looks for: order of d pairs of steps
    int pct_steps = 0;                 // that PCT expects; 0: the most in the schedules before
    int shrink_replays = 200;          // the most runs to shrink the schedule of a hazard, in 5 seconds; 0: none
    std::string replay = {};           // the schedule of a report: runs only that
    std::string trace_file = {};       // writes a trace of the shrunk or replayed schedule here
    check_summary* summary = nullptr;  // what was run

    host_options of_schedule(int number) const {
        host_options options;
        options.mode = host_mode::checked;
        options.seed = first_seed + static_cast<std::uint64_t>(number);
        options.track_global_memory = track_global_memory;
        options.uninitialised = uninitialised;
        options.exempt = exempt;
        options.scheduler = scheduler;
        options.bug_depth = bug_depth;
        options.pct_steps = pct_steps;
        options.replay = replay;
        if (!replay.empty()) options.trace_file = trace_file;
        return options;
    }
};

}  // namespace imbrex::host
