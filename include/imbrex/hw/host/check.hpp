// The loop of a check: runs schedule after schedule until one shows a hazard.
#pragma once

#include <imbrex/hw/host/check_options.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>

#include <optional>

namespace imbrex::hw {

// What a check runs under each schedule: a kernel or several launches, with their preparation. A reference to a function
// of the options that returns the hazard.
class checked_run {
  public:
    template <class Run>
    explicit checked_run(const Run& run)
        : data_(&run), run_([](const void* data, const host_options& options) {
              return (*static_cast<const Run*>(data))(options);
          }) {}

    std::optional<hazard> operator()(const host_options& options) const { return run_(data_, options); }

  private:
    const void* data_;
    std::optional<hazard> (*run_)(const void*, const host_options&);
};

// Returns the first hazard, or none.
inline std::optional<hazard> check_schedules(const checked_run& run, const host::check_options& options) {
    require(options.bug_depth >= 1, "bug_depth: ", options.bug_depth, "; must be at least 1");
    const bool pct = options.scheduler == scheduling::pct;
    schedule_record record;
    std::optional<hazard> found;
    int schedules = 0;
    while (schedules < options.schedules && !found) {
        host_options one = options.of_schedule(schedules++);
        if (pct && one.pct_steps == 0) one.pct_steps = record.steps;
        if (pct || options.summary != nullptr) one.record = &record;
        found = run(one);
    }
    if (options.summary != nullptr) {
        *options.summary = {schedules, options.scheduler, options.bug_depth, record.threads, record.steps};
    }
    return found;
}

}  // namespace imbrex::hw
