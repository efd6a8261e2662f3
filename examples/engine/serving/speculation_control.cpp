#include "engine/serving/speculation_control.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <queue>
#include <vector>

namespace imbrex::engine {

namespace {

constexpr double newest_weight = 0.25;  // of the newest step in a mean
constexpr double outlier = 1.5;         // a step counts as at most this much longer than the mean
constexpr double used_decay = 0.8, unused_decay = 0.98;

void update_mean(double& mean, double newest) {
    mean += newest_weight * (std::min(newest, outlier * mean) - mean);
}

}  // namespace

// Up to 8 rows apart, then four groups for each power of two.
int step_costs::group_of(int rows) {
    if (rows <= 8) return std::max(rows, 1) - 1;
    const int power = std::bit_width(static_cast<unsigned>(rows - 1));  // at least 4
    const int quarter = (rows - 1 - (1 << (power - 1))) * 4 >> (power - 1);
    return std::min(8 + (power - 4) * 4 + quarter, groups - 1);
}

void step_costs::observe(int rows, double seconds) {
    measurement& own = all_[static_cast<std::size_t>(group_of(rows))];
    if (++steps_ - own.last >= forgotten) own = {};
    if (own.count == 0) {
        own.seconds = seconds;
        own.rows = rows;
    } else if (own.count < trials) {
        own.seconds = std::min(own.seconds, seconds);  // the first steps allocate and compile
    } else {
        update_mean(own.seconds, seconds);
    }
    own.rows += newest_weight * (rows - own.rows);
    own.last = steps_;
    ++own.count;
}

double step_costs::of(int rows) const {
    const measurement *below = nullptr, *above = nullptr;
    for (const measurement& each : all_) {
        if (!is_known(each)) continue;
        if (each.rows <= rows) below = &each;
        if (each.rows >= rows && above == nullptr) above = &each;
    }
    if (below == nullptr) return above == nullptr ? 0 : above->seconds * rows / above->rows;
    if (above == nullptr) return below->seconds;
    if (below->rows == above->rows) return below->seconds;
    return below->seconds + (above->seconds - below->seconds) * (rows - below->rows) / (above->rows - below->rows);
}

void acceptance_estimate::observe(int drafted, int accepted) {
    const int tried = std::min(accepted + 1, drafted);  // a token behind a rejected one says nothing
    accepted_ = used_decay * accepted_ + accepted;
    tried_ = used_decay * tried_ + tried;
}

void acceptance_estimate::unused() {
    accepted_ *= unused_decay;
    tried_ *= unused_decay;
}

double speculation_control::probability(sequence_id id) const {
    const double expected = all_.value(first_expectation);
    const auto found = sequences_.find(id);
    return found == sequences_.end() ? expected : found->second.value(expected);
}

void speculation_control::choose(batch& next) const {
    struct candidate {
        double yield;  // of the next draft token
        double probability;
        std::size_t entry;
        int depth;
        bool operator<(const candidate& other) const { return yield < other.yield; }
    };
    std::priority_queue<candidate> candidates;
    for (std::size_t i = 0; i < next.entries.size(); ++i) {
        if (next.entries[i].max_draft == 0) continue;
        const double p = probability(next.entries[i].sequence->id);
        candidates.push({.yield = p, .probability = p, .entry = i, .depth = 1});
    }
    if (candidates.empty()) return;
    int rows = next.tokens(), deepest = 0;
    double tokens = next.samples();
    const auto speed = [&] {
        const double seconds = costs_.of(rows) + deepest * draft_seconds_;
        return seconds > 0 ? tokens / seconds : tokens;
    };
    double best = speed();
    std::vector<std::size_t> rows_of;  // the entry of each row, in the order in which they are added
    std::size_t chosen = 0;
    while (!candidates.empty()) {
        candidate one = candidates.top();
        candidates.pop();
        rows_of.push_back(one.entry);
        tokens += one.yield;
        ++rows;
        deepest = std::max(deepest, one.depth);
        if (const double now = speed(); now > best) {
            best = now;
            chosen = rows_of.size();
        }
        if (one.depth == next.entries[one.entry].max_draft) continue;
        one.yield *= one.probability;
        ++one.depth;
        candidates.push(one);
    }
    for (batch_entry& entry : next.entries) entry.max_draft = 0;
    for (std::size_t i = 0; i < chosen; ++i) ++next.entries[rows_of[i]].max_draft;
}

void speculation_control::observe(const batch& done, double draft_seconds, double run_seconds) {
    if (done.tokens() == done.samples()) costs_.observe(done.tokens(), run_seconds);
    std::size_t deepest = 0;
    for (const batch_entry& entry : done.entries) {
        deepest = std::max(deepest, entry.draft.size());
        const auto found = sequences_.find(entry.sequence->id);
        if (entry.draft.empty() && found != sequences_.end()) found->second.unused();
    }
    if (deepest == 0) {
        all_.unused();
        draft_seconds_ *= unused_decay;
        return;
    }
    const double of_token = draft_seconds / static_cast<double>(deepest);
    if (++drafts_ <= step_costs::trials) {
        draft_seconds_ = drafts_ == 1 ? of_token : std::min(draft_seconds_, of_token);
    } else {
        update_mean(draft_seconds_, of_token);
    }
}

void speculation_control::accepted(sequence_id id, int drafted, int accepted) {
    all_.observe(drafted, accepted);
    sequences_[id].observe(drafted, accepted);
}

}  // namespace imbrex::engine
