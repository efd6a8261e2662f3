// Shrinks the schedule of a hazard. The schedule runs again to record its decisions (decisions.hpp); delta debugging
// (Zeller and Hildebrandt, 2002) then removes as many as possible while the same hazard appears: the same kind at the
// same source lines. What is left is a schedule with few preemptions and late completions, which is replayed once more
// for its timeline. A kernel that does not end under another order counts as a livelock. If the hazard does not appear again, for instance because the kernel's arguments are not reset, the
// first report remains.
#pragma once

#include <imbrex/hw/host/check_options.hpp>
#include <imbrex/hw/host/checked_run.hpp>
#include <imbrex/hw/host/decisions.hpp>
#include <imbrex/hw/host/hazard.hpp>
#include <imbrex/hw/host/options.hpp>

#include <time.h>
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::hw {

// The same kind at the same lines, whichever scopes they are of.
inline bool same_hazard(const hazard& a, const hazard& b) {
    const auto lines_of = [](const hazard& one) {
        std::vector<std::pair<std::string, int>> lines;
        for (const hazard_location& location : one.locations) lines.emplace_back(location.file, location.line);
        std::sort(lines.begin(), lines.end());
        lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
        return lines;
    };
    return a.kind == b.kind && lines_of(a) == lines_of(b);
}

class schedule_shrinker {
  public:
    // `options` are those of the run that has shown the hazard.
    schedule_shrinker(const checked_run& run, host_options options, hazard found, int replays)
        : run_(run), options_(std::move(options)), found_(std::move(found)), replays_left_(replays) {
        options_.record = nullptr;
        clock_gettime(CLOCK_MONOTONIC, &begin_);
    }

    // The hazard of the shrunk schedule, with its timeline; or the hazard as it was found.
    hazard shrink(const std::string& trace_file) {
        schedule_record record{.keeps_decisions = true};
        host_options recorded = options_;
        recorded.record = &record;
        if (!run_again(recorded)) return found_;
        options_.most_steps = 10000 + 20 * record.steps;  // another order may never end
        const std::size_t before = record.decisions.size();
        const std::vector<schedule_decision> kept = minimise(std::move(record.decisions));

        host_options last = replay_of(kept);
        last.trace_file = trace_file;
        const std::optional<hazard> again = run_again(last);
        if (!again) return found_;
        hazard result = *again;
        result.scheduler = found_.scheduler;
        result.shrunk = text_of(kept, before);
        return result;
    }

  private:
    static constexpr int most_seconds = 5;

    host_options replay_of(const std::vector<schedule_decision>& decisions) const {
        host_options options = options_;
        options.replay = replayed_schedule{options_.seed, decisions}.text();
        return options;
    }

    static std::string text_of(const std::vector<schedule_decision>& kept, std::size_t before) {
        const auto late =
            std::count_if(kept.begin(), kept.end(), [](const auto& one) { return one.is_late_completion(); });
        return str_cat(": preemptions ", static_cast<std::ptrdiff_t>(kept.size()) - late, ", late completions ", late,
                       "; before shrinking ", before, " in all");
    }

    // The hazard, if it appears again. An exception of the kernel, from arguments that are not as they were, counts as
    // another result.
    std::optional<hazard> run_again(const host_options& options) const {
        std::optional<hazard> again;
        try {
            again = run_(options);
        } catch (...) {
            return std::nullopt;
        }
        return again && same_hazard(*again, found_) ? again : std::nullopt;
    }
    bool shows_hazard(const std::vector<schedule_decision>& decisions) {
        --replays_left_;
        return run_again(replay_of(decisions)).has_value();
    }
    bool may_go_on() const {
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return replays_left_ > 0 && now.tv_sec - begin_.tv_sec <= most_seconds;
    }

    // Tries to leave out all decisions, then halves, quarters, ..., single ones, until none can be left out.
    std::vector<schedule_decision> minimise(std::vector<schedule_decision> kept) {
        std::size_t length = kept.size();
        while (length > 0 && may_go_on()) {
            bool shorter = false;
            for (std::size_t at = 0; at < kept.size() && may_go_on();) {
                std::vector<schedule_decision> fewer = kept;
                const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
                fewer.erase(first, fewer.begin() + static_cast<std::ptrdiff_t>(std::min(at + length, kept.size())));
                if (shows_hazard(fewer)) {
                    kept = std::move(fewer);
                    shorter = true;
                } else {
                    at += length;
                }
            }
            if (!shorter || length > 1) length = length == 1 ? 0 : (length + 1) / 2;
        }
        return kept;
    }

    const checked_run& run_;
    host_options options_;
    hazard found_;
    int replays_left_;
    timespec begin_{};
};

}  // namespace imbrex::hw
