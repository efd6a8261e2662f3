// The serving loop: requests in, events out. step() schedules a batch, runs it, appends the sampled tokens and
// detokenizes them. The runner is a template argument and the detokenizer a function, so the loop does not depend on a
// model.
//
// With a runner on a GPU steps overlap: the next batch is scheduled and launched while one runs, and its input tokens stay
// on the GPU. Scheduling, detokenizing and all that the caller does between steps then costs no time of the GPU:
//
//     GPU    | batch 1                    | batch 2                             | batch 3
//     host   | launch 2, wait for 1       | events 1, caller, launch 3, wait    | events 2, caller, launch 4, wait
//
// A batch that needs the tokens of the one before on the host (scheduler::schedule_ahead) is launched when that one has
// ended, before its events are made.
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/sampled_token.hpp"
#include "engine/serving/scheduler.hpp"
#include "engine/serving/speculation.hpp"
#include "engine/serving/statistics.hpp"
#include "engine/serving/step_load.hpp"
#include "engine/serving/stop_strings.hpp"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <deque>
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

// The same in two parts: launch() returns while the batch is computed, wait() returns the tokens of the oldest one. The
// batch stays as it is until then. Up to two are in flight: the newer one may have tokens of the older one as its input
// (batch_entry::input_row). After a wait() that throws, its batch is no longer in flight.
template <class Runner>
concept overlapping_runner = batch_runner<Runner> && requires(Runner& runner, const batch& work) {
    runner.launch(work);
    { runner.wait() } -> std::same_as<std::vector<int>>;
};

// A runner that measures how long the GPU had nothing to do before the batch that was waited for last.
template <class Runner>
concept idle_measuring_runner = requires(const Runner& runner) {
    { runner.idle_seconds() } -> std::same_as<std::optional<double>>;
};

// A runner that knows more of the sampled tokens of the batch that was waited for last.
template <class Runner>
concept describing_runner = requires(const Runner& runner) {
    { runner.last_sampled() } -> std::convertible_to<const std::vector<sampled_token>&>;
};

// Detokenizes one sequence, token by token; called without a token at the end, to flush held-back bytes of a partial
// character.
using detokenize_function = std::function<std::string(std::optional<int>)>;

struct event {
    sequence_id id;
    sampled_token sampled;
    std::string text;       // new text; without stop strings and EOS tokens
    finish_reason reason;   // none: the sequence continues
    int cached_tokens = 0;  // of the prompt, from the prefix cache
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

    // From now on steps overlap. A sequence that a token or a stop string ends is part of one or two more batches; their
    // tokens are dropped.
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
    // the next steps. While all sequences wait for files of the prefix cache, it waits for a moment.
    std::vector<event> step() {
        failed_batch_.clear();
        if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
        if (in_flight_.empty()) launch(scheduler_.schedule());
        // The first tokens after a pause are not delayed by the launch of another step.
        const bool overlaps = overlaps_ && !in_flight_.empty() && !in_flight_.front().was_idle;
        if (overlaps) launch_ahead();
        if (!in_flight_.empty()) {
            finish();
        } else {
            last_step_ = {};
            scheduler_.wait_for_files(most_wait);
        }
        if (overlaps && in_flight_.empty()) launch_early();
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
        if (!in_flight_.empty()) return false;
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
    static constexpr std::chrono::milliseconds most_wait{2};  // then the caller may add and cancel requests

    struct output {
        detokenize_function decode;
        stop_string_filter text;
    };

    struct flight {
        batch work;
        bool was_idle = false;         // no sequence was there before: what the GPU waited for was a request
        std::exception_ptr failure{};  // of its launch
    };

    // A batch that fails while another one runs is abandoned in its turn.
    void launch(batch next) {
        if (next.entries.empty()) return;
        if (in_flight_.empty()) statistics_.step_begins();
        in_flight_.push_back({.work = std::move(next), .was_idle = std::exchange(was_idle_, false)});
        flight& now = in_flight_.back();
        try {
            if (speculation_) speculation_->draft(now.work);
            if constexpr (overlapping_runner<Runner>) runner_.launch(now.work);
        } catch (...) {
            now.failure = std::current_exception();
        }
    }

    // While a batch runs. The events of the one before are made: they may have ended sequences.
    void launch_ahead() {
        if (in_flight_.size() != 1 || speculation_ || in_flight_.front().failure) return;
        try {
            if (std::optional<batch> next = scheduler_.schedule_ahead(in_flight_.front().work)) {
                launch(*std::move(next));
                statistics_.launched_ahead();
            }
        } catch (...) {
            failure_ = std::current_exception();
        }
    }

    // The events of the batch before are still to be made: an error is kept for the next step.
    void launch_early() {
        try {
            launch(scheduler_.schedule());
        } catch (...) {
            failure_ = std::current_exception();
        }
    }

    void finish() {
        flight& now = in_flight_.front();
        try {
            if (now.failure) std::rethrow_exception(now.failure);
            const std::vector<int> sampled = tokens_of(now.work);
            const double ended = speculation_ ? speculation_->now() : 0;
            finished_ = scheduler_.finish(now.work, sampled);
            if (speculation_) speculation_->learn(now.work, finished_, ended);
        } catch (...) {
            abandon();
            throw;
        }
        last_step_ = load_of(now.work);
        count(now);
        in_flight_.pop_front();
        if (!in_flight_.empty()) statistics_.step_begins();
    }

    std::vector<int> tokens_of(const batch& work) {
        if constexpr (overlapping_runner<Runner>) {
            return runner_.wait();
        } else {
            return runner_.run(work);
        }
    }

    // The oldest batch has failed; one that was launched behind it may have used its tokens.
    void abandon() {
        std::deque<flight> all = std::exchange(in_flight_, {});
        for (const batch_entry& entry : all.front().work.entries) failed_batch_.push_back(entry.sequence->id);
        for (std::size_t i = 1; i < all.size(); ++i) {
            if (!all[i].failure) wait_for_nothing();
        }
        for (const flight& each : all) scheduler_.abandon(each.work);
    }
    void wait_for_nothing() {
        if constexpr (overlapping_runner<Runner>) {
            try {
                runner_.wait();
            } catch (...) {  // the batch is abandoned
            }
        }
    }

    // The sequences of a batch may have ended since it was launched. Without others no step would follow.
    void free_if_idle() {
        if (!scheduler_.idle()) return;
        wait_quietly();
        failure_ = nullptr;
        was_idle_ = true;
    }
    void wait_quietly() {
        while (!in_flight_.empty()) {
            try {
                finish();
            } catch (...) {  // there is no sequence that it could concern
            }
        }
    }

    event event_of(const progress& each) {
        event shown{
            .id = each.id, .sampled = sampled(each), .text = {}, .reason = each.reason, .cached_tokens = each.cached};
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

    sampled_token sampled(const progress& each) const {
        if constexpr (describing_runner<Runner>) {
            return runner_.last_sampled().at(static_cast<std::size_t>(each.sample));
        } else {
            return {.token = each.token};
        }
    }

    bool end(sequence_id id, finish_reason reason) {
        scheduler_.end(id, reason);
        if (speculation_) speculation_->ended(id);
        if (outputs_.erase(id) == 0) return false;
        statistics_.ended(id, reason);
        return true;
    }

    void count(const flight& done) {
        const batch& work = done.work;
        if constexpr (idle_measuring_runner<Runner>) {
            if (const auto idle = runner_.idle_seconds(); idle && !done.was_idle) statistics_.device_idled(*idle);
        }
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
             .disk_cache = lower && lower->disk() ? std::optional(lower->disk()->counts()) : std::nullopt,
             .disk_waits = counts.disk_waits,
             .disk_wait_seconds = counts.disk_wait_seconds});
    }

    Runner& runner_;
    scheduler scheduler_;
    std::function<detokenize_function()> make_detokenizer_;
    statistics statistics_;
    std::optional<speculation> speculation_;
    step_load last_step_;
    std::unordered_map<sequence_id, output> outputs_;
    bool overlaps_ = false;
    bool was_idle_ = true;  // since the last batch was launched
    std::deque<flight> in_flight_;
    std::vector<progress> finished_;  // of the batch that has ended; their events are not made yet
    std::exception_ptr failure_;      // of scheduling ahead
    std::vector<sequence_id> failed_batch_;
};

}  // namespace imbrex::engine
