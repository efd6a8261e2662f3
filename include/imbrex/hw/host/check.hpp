// The loop of a check: runs schedule after schedule until one shows a hazard, and shrinks that schedule.
#pragma once

#include <imbrex/hw/host/check_options.hpp>
#include <imbrex/hw/host/checked_run.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>
#include <imbrex/hw/host/shrink.hpp>

#include <optional>

namespace imbrex::hw {

// Returns the first hazard, or none.
inline std::optional<hazard> check_schedules(const checked_run& run, const host::check_options& options) {
    require(options.bug_depth >= 1, "bug_depth: ", options.bug_depth, "; must be at least 1");
    const bool pct = options.scheduler == scheduling::pct;
    schedule_record record;
    std::optional<hazard> found;
    int schedules = 0;
    const bool replays = !options.replay.empty();
    while (schedules < (replays ? 1 : options.schedules) && !found) {
        host_options one = options.of_schedule(schedules++);
        if (pct && one.pct_steps == 0) one.pct_steps = record.steps;
        if (pct || options.summary != nullptr) one.record = &record;
        found = run(one);
        if (found && !replays && options.shrink_replays > 0) {
            found = schedule_shrinker(run, one, *found, options.shrink_replays).shrink(options.trace_file);
        }
    }
    if (options.summary != nullptr) {
        *options.summary = {schedules, options.scheduler, options.bug_depth, record.threads, record.steps};
    }
    return found;
}

}  // namespace imbrex::hw
