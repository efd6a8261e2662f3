// The serving loop: requests in, events out. step() schedules a batch, runs it, appends the sampled tokens and
// detokenizes them. The runner is a template argument and the detokenizer a function, so the loop does not depend on a
// model.
//
// With a runner on a GPU steps overlap: the next batch is launched before the events of the one that has ended are made.
// Detokenizing, and all that the caller does between steps, then costs no time of the GPU:
//
//     GPU    | batch 1           | batch 2           | batch 3
//     host   |                   | events 1, caller  | events 2, caller        schedule and launch in between
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/scheduler.hpp"
#include "engine/serving/speculation.hpp"
#include "engine/serving/statistics.hpp"
#include "engine/serving/step_load.hpp"
#include "engine/serving/stop_strings.hpp"

#include <concepts>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace imbrex::engine {

// Makes the block copies, computes the tokens and returns one token per sampled position.
template <class Runner>
concept batch_runner = requires(Runner& runner, const batch& work) {
    { runner.run(work) } -> std::same_as<std::vector<int>>;
};

// The same in two parts: launch() returns while the batch is computed, wait() returns its tokens. The batch stays as it is
// until then.
template <class Runner>
concept overlapping_runner = batch_runner<Runner> && requires(Runner& runner, const batch& work) {
    runner.launch(work);
    { runner.wait() } -> std::same_as<std::vector<int>>;
};

// Detokenizes one sequence, token by token; called without a token at the end, to flush held-back bytes of a partial
// character.
using detokenize_function = std::function<std::string(std::optional<int>)>;

struct event {
    sequence_id id;
    int token;
    std::string text;      // new text; without stop strings and EOS tokens
    finish_reason reason;  // none: the sequence continues
    int sample = 0;        // which of the sampled tokens of the step it is
};

template <batch_runner Runner>
class engine {
  public:
    // Without a detokenizer, events have no text and stop strings have no effect.
    engine(Runner& runner, block_manager blocks, scheduler_options options,
           std::function<detokenize_function()> make_detokenizer = {}, statistics figures = statistics{})
        : runner_(runner),
          scheduler_(std::move(blocks), options),
          make_detokenizer_(std::move(make_detokenizer)),
          statistics_(std::move(figures)) {}
    ~engine() { wait_quietly(); }
    engine(const engine&) = delete;
    engine& operator=(const engine&) = delete;

    // From now on steps overlap. A sequence that a stop string ends is part of one more batch; its token is dropped.
    void overlap_steps() requires overlapping_runner<Runner> { overlaps_ = true; }

    // Drafts for the decoding sequences; scheduler_options say how many at most. The texts stay the same.
    void speculate(speculation drafts) { speculation_.emplace(std::move(drafts)); }

    std::vector<sequence_id> add(const request& wanted) {
        std::vector<sequence_id> ids = scheduler_.add(wanted);
        for (const sequence_id id : ids) {
            outputs_.emplace(id, output{.decode = make_detokenizer_ ? make_detokenizer_() : detokenize_function{},
                                        .text = stop_string_filter(wanted.sampling.stop)});
            statistics_.arrived(id);
        }
        return ids;
    }

    // The sequence produces no further events.
    bool cancel(sequence_id id) {
        const bool was_there = end(id, finish_reason::cancelled);
        free_if_idle();
        return was_there;
    }

    // Runs one batch and returns its events; empty if there is no work. If the batch fails, its sequences are recomputed by
    // the next steps.
    std::vector<event> step() {
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        if (!in_flight_) launch();
        if (in_flight_) finish();
        if (overlaps_) launch_ahead();
        std::vector<event> events;
        for (const progress& each : std::exchange(finished_, {})) {
            // A token before it may have completed a stop string.
            if (outputs_.contains(each.id)) events.push_back(event_of(each));
        }
        free_if_idle();
        return events;
    }

    // When step() has thrown: the sequences of the batch that failed; none if no batch could be made.
    const std::vector<sequence_id>& failed_batch() const { return failed_batch_; }

    // Between steps: moves the next blocks of the prefix cache that are not in files to the disk level. False if there
    // are no more, or if there is no disk level.
    bool save_cached() {
        if (in_flight_) return false;
        const batch work = scheduler_.save_cached();
        if (work.moves.empty()) return false;
        try {
            scheduler_.finish(work, runner_.run(work));
        } catch (...) {
            scheduler_.abandon(work);
            throw;
        }
        return true;
    }

    void limit_batched_tokens(int tokens) { scheduler_.limit_batched_tokens(tokens); }

    bool idle() const { return scheduler_.idle(); }
    bool overlaps() const { return overlaps_; }
    const block_manager& blocks() const { return scheduler_.blocks(); }
    const step_load& last_step() const { return last_step_; }  // the one whose events came last
    statistics_summary summary() const { return statistics_.summary(); }

  private:
    struct output {
        detokenize_function decode;
        stop_string_filter text;
    };

    void launch() {
        statistics_.step_begins();
        failed_batch_.clear();
        in_flight_.emplace(scheduler_.schedule());
        if (in_flight_->entries.empty()) {
            in_flight_.reset();
            return;
        }
        try {
            if (speculation_) speculation_->draft(*in_flight_);
            if constexpr (overlapping_runner<Runner>) runner_.launch(*in_flight_);
        } catch (...) {
            abandon();
            throw;
        }
    }

    // The events of the batch before are still to be made: an error is kept for the next step.
    void launch_ahead() {
        try {
            launch();
        } catch (...) {
            failure_ = std::current_exception();
        }
    }

    void finish() {
        try {
            const std::vector<int> sampled = tokens_of_batch();
            const double ended = speculation_ ? speculation_->now() : 0;
            finished_ = scheduler_.finish(*in_flight_, sampled);
            if (speculation_) speculation_->learn(*in_flight_, finished_, ended);
        } catch (...) {
            abandon();
            throw;
        }
        last_step_ = load_of(*in_flight_);
        count(*in_flight_);
        in_flight_.reset();
    }

    std::vector<int> tokens_of_batch() {
        if constexpr (overlapping_runner<Runner>) {
            return runner_.wait();
        } else {
            return runner_.run(*in_flight_);
        }
    }

    void abandon() {
        for (const batch_entry& entry : in_flight_->entries) failed_batch_.push_back(entry.sequence->id);
        scheduler_.abandon(*in_flight_);
        in_flight_.reset();
    }

    // The sequences of a batch may have ended since it was launched. Without others no step would follow.
    void free_if_idle() {
        if (!scheduler_.idle()) return;
        wait_quietly();
        failure_ = nullptr;
    }
    void wait_quietly() {
        if (!in_flight_) return;
        try {
            finish();
        } catch (...) {  // there is no sequence that it could concern
        }
    }

    event event_of(const progress& each) {
        event shown{.id = each.id, .token = each.token, .text = {}, .reason = each.reason, .sample = each.sample};
        statistics_.token(each.id);
        auto& [decode, text] = outputs_.at(each.id);
        if (decode && each.reason != finish_reason::eos_token) shown.text = text.push(decode(each.token));
        if (decode && each.reason != finish_reason::none && !text.stopped())
            shown.text += text.push(decode(std::nullopt));
        if (text.stopped()) shown.reason = finish_reason::stop_string;
        if (shown.reason == finish_reason::none) return shown;
        shown.text += text.finish();
        end(each.id, shown.reason);
        return shown;
    }

    bool end(sequence_id id, finish_reason reason) {
        scheduler_.end(id, reason);
        if (speculation_) speculation_->ended(id);
        if (outputs_.erase(id) == 0) return false;
        statistics_.ended(id, reason);
        return true;
    }

    void count(const batch& work) {
        const block_manager& blocks = scheduler_.blocks();
        const scheduler_counts& counts = scheduler_.counts();
        const lower_levels* const lower = blocks.lower();
        statistics_.step_ends(
            {.sequences = static_cast<int>(work.entries.size()),
             .sampling = work.samples() - work.drafted(),
             .tokens = work.tokens(),
             .used_bytes = blocks.used_bytes(),
             .cache_bytes = blocks.bytes(),
             .prompt_tokens = counts.prompt_tokens,
             .cached_tokens = counts.cached_tokens,
             .preemptions = counts.preemptions,
             .drafted_tokens = counts.drafted_tokens,
             .accepted_tokens = counts.accepted_tokens,
             .host_tokens = counts.host_tokens,
             .disk_tokens = counts.disk_tokens,
             .host_cache = lower ? std::optional(lower->host_counts()) : std::nullopt,
             .disk_cache = lower && lower->disk() ? std::optional(lower->disk()->counts()) : std::nullopt});
    }

    Runner& runner_;
    scheduler scheduler_;
    std::function<detokenize_function()> make_detokenizer_;
    statistics statistics_;
    std::optional<speculation> speculation_;
    step_load last_step_;
    std::unordered_map<sequence_id, output> outputs_;
    bool overlaps_ = false;
    std::optional<batch> in_flight_;
    std::vector<progress> finished_;  // of the batch that has ended; their events are not made yet
    std::exception_ptr failure_;      // of a batch that was launched ahead
    std::vector<sequence_id> failed_batch_;
};

}  // namespace imbrex::engine
