// The serving loop: requests in, events out. step() schedules a batch, runs it, appends the sampled tokens and
// detokenizes them. The runner is a template argument and the detokenizer a function, so the loop does not depend on a
// model.
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/scheduler.hpp"
#include "engine/serving/speculation.hpp"
#include "engine/serving/statistics.hpp"
#include "engine/serving/stop_strings.hpp"

#include <concepts>
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
    bool cancel(sequence_id id) { return end(id, finish_reason::cancelled); }

    // Runs one batch and returns its events; empty if there is no work.
    std::vector<event> step() {
        statistics_.step_begins();
        batch work = scheduler_.schedule();
        if (work.entries.empty()) return {};
        std::vector<event> events;
        for (const progress& each : run(work)) {
            // Of several tokens, one may have completed a stop string.
            if (outputs_.contains(each.id)) events.push_back(event_of(each));
        }
        count(work);
        return events;
    }

    void limit_batched_tokens(int tokens) { scheduler_.limit_batched_tokens(tokens); }

    bool idle() const { return scheduler_.idle(); }
    const block_manager& blocks() const { return scheduler_.blocks(); }
    statistics_summary summary() const { return statistics_.summary(); }

  private:
    struct output {
        detokenize_function decode;
        stop_string_filter text;
    };

    std::vector<progress> run(batch& work) {
        try {
            if (speculation_) speculation_->draft(work);
            const std::vector<int> sampled = runner_.run(work);
            const double ended = speculation_ ? speculation_->now() : 0;
            std::vector<progress> tokens = scheduler_.finish(work, sampled);
            if (speculation_) speculation_->learn(work, tokens, ended);
            return tokens;
        } catch (...) {
            scheduler_.abandon(work);
            throw;
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
        statistics_.step_ends({.sequences = static_cast<int>(work.entries.size()),
                               .sampling = work.samples() - work.drafted(),
                               .tokens = work.tokens(),
                               .used_bytes = blocks.used_bytes(),
                               .cache_bytes = blocks.bytes(),
                               .prompt_tokens = counts.prompt_tokens,
                               .cached_tokens = counts.cached_tokens,
                               .preemptions = counts.preemptions,
                               .drafted_tokens = counts.drafted_tokens,
                               .accepted_tokens = counts.accepted_tokens});
    }

    Runner& runner_;
    scheduler scheduler_;
    std::function<detokenize_function()> make_detokenizer_;
    statistics statistics_;
    std::optional<speculation> speculation_;
    std::unordered_map<sequence_id, output> outputs_;
};

}  // namespace imbrex::engine
