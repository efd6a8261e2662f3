// A batch that is scheduled while the one before it runs: the state of the sequences is advanced to the end of that one, with
// a place for each token that it samples; finish puts the token there.
#include "engine/serving/scheduler.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace imbrex::engine {

std::optional<batch> scheduler::schedule_ahead(const batch& running) {
    require(in_flight() == 1, "schedule_ahead: ", in_flight(), " batches are in flight; there must be one");
    if (!knows_enough_after(running)) return std::nullopt;
    batch next;
    advance(running);
    try {
        num_ending_ = static_cast<int>(std::ranges::count_if(running_, &sequence::is_complete, &pointer::operator*));
        if (append_blocks_without_preemption()) complete(next);
        num_ending_ = 0;
    } catch (...) {
        num_ending_ = 0;
        take_back(running);
        throw;
    }
    if (!next.entries.empty()) return next;
    take_back(running);
    return std::nullopt;
}

// Whether the next batch can be made without the tokens of this one, and without a preemption by a higher priority.
bool scheduler::knows_enough_after(const batch& running) const {
    if (!waiting_.empty() && !running_.empty() && (*waiting_.begin())->priority > (*running_.rbegin())->priority)
        return false;
    return std::ranges::all_of(running.entries, [&](const batch_entry& entry) {
        const sequence* const it = entry.samples ? find(entry.sequence->id) : nullptr;
        if (it == nullptr || it->length() + 1 == it->max_total_tokens) return true;
        return entry.draft.empty() && !it->constraint && !it->sampling.has_penalties();
    });
}

// The state of the sequences as it will be after this batch, with a place for the new token.
void scheduler::advance(const batch& running) {
    int row = 0;
    for (const batch_entry& entry : running.entries) {
        const int own = std::exchange(row, row + entry.num_samples());
        const auto found = sequences_.find(entry.sequence->id);
        if (found == sequences_.end()) continue;
        sequence& it = *found->second;
        it.num_computed_tokens = entry.first + entry.count;
        if (!entry.samples) continue;
        it.tokens.push_back(unknown_token);
        it.unknown_row = own;
    }
}

void scheduler::take_back(const batch& running) {
    for (const batch_entry& entry : running.entries) {
        const auto found = sequences_.find(entry.sequence->id);
        if (found == sequences_.end()) continue;
        found->second->num_computed_tokens = entry.first;
        drop_unknown_token(*found->second);
    }
}

void scheduler::drop_unknown_token(sequence& it) {
    if (!it.has_unknown_token()) return;
    it.tokens.pop_back();
    it.unknown_row = -1;
}

bool scheduler::append_blocks_without_preemption() {
    return std::ranges::all_of(running_, [&](const pointer& it) {
        return it->is_complete() || blocks_.extend(it->block_table, it->num_computed_tokens + 1);
    });
}

}  // namespace imbrex::engine
