// Speculative decoding of an engine: a proposer of drafts, and the control that decides how many are worth their time.
#pragma once

#include "engine/serving/draft_proposer.hpp"
#include "engine/serving/scheduler.hpp"
#include "engine/serving/speculation_control.hpp"
#include "engine/serving/statistics.hpp"

#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

namespace imbrex::engine {

class speculation {
  public:
    enum class depth { adapted, fixed };  // fixed: always as many draft tokens as the scheduler allows

    explicit speculation(std::unique_ptr<draft_proposer> proposer, depth how = depth::adapted,
                         statistics::seconds_clock clock = statistics::steady_seconds)
        : proposer_(std::move(proposer)), depth_(how), clock_(std::move(clock)) {}

    // Gives the batch its drafts; it runs next.
    void draft(batch& next) {
        const double began = clock_();
        if (depth_ == depth::adapted) control_.choose(next);
        proposer_->propose(next);
        run_began_ = clock_();
        draft_seconds_ = run_began_ - began;
    }

    // The batch has run. Its new tokens follow one another for each sequence.
    void learn(const batch& done, std::span<const progress> tokens, double run_ended) {
        control_.observe(done, draft_seconds_, run_ended - run_began_);
        std::unordered_map<sequence_id, int> accepted;
        for (const progress& each : tokens) accepted[each.id] += each.accepted;
        for (const batch_entry& entry : done.entries) {
            const auto found = accepted.find(entry.sequence->id);
            if (entry.draft.empty() || found == accepted.end()) continue;
            control_.accepted(found->first, static_cast<int>(entry.draft.size()), found->second);
        }
    }
    double now() const { return clock_(); }

    void ended(sequence_id id) {
        control_.forget(id);
        proposer_->ended(id);
    }

  private:
    std::unique_ptr<draft_proposer> proposer_;
    depth depth_;
    statistics::seconds_clock clock_;
    speculation_control control_;
    double run_began_ = 0, draft_seconds_ = 0;
};

}  // namespace imbrex::engine
