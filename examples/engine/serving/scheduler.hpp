// The scheduler: continuous batching with chunked prefill, prefix caching and preemption. Each step computes one token
// of every decoding sequence and fills the rest of the token budget with chunks of prompts, so that a long prompt does
// not stall decodes. The order is priority, then arrival:
//
//   append_blocks  allocates blocks for the next tokens of running sequences, preempting the last in order if needed
//   admit          starts waiting sequences in order, with blocks for all their tokens; may preempt lower priorities
//   fill           fills the batch; in layers with a window, a chunk of a prompt gets its blocks now
//   allow_drafts   what is left of the token budget may be filled with draft tokens of decoding sequences
//
// The first in order always gets a block, since all others can be preempted, so every step makes progress. Preemption
// is by recompute: the sequence frees its blocks and waits; later it reuses blocks that are still cached and recomputes
// the rest. A sequence whose prefix lies in files waits until threads have read them (disk_reader.hpp), and those behind
// it start. Not thread-safe.
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/block_manager.hpp"
#include "engine/serving/sequence.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace imbrex::engine {

struct scheduler_options {
    int context = 2048;  // maximum tokens of a sequence, prompt included
    int max_num_batched_tokens =
        2048;                // token budget of a step; at least max_num_seqs, so that all sequences can decode
    int max_num_seqs = 256;  // maximum running sequences
    // Never mixes prompt and generated tokens in one batch, and caches prompt blocks only. For a batch-invariant
    // runner, whose kernel for a token depends on whether the token is of the prompt or generated.
    bool separate_prefill = false;
    int max_draft_tokens = 0;      // speculative decoding: draft tokens of a sequence in a step; 0: none
    int max_num_draft_tokens = 0;  // the same of all sequences; 0: as many as the token budget allows
};

struct scheduler_counts {
    std::int64_t preemptions = 0;
    std::int64_t copies = 0;                        // of blocks
    std::int64_t prompt_tokens = 0;                 // tokens of sequences when they started or resumed
    std::int64_t cached_tokens = 0;                 // of these, found in the prefix cache
    std::int64_t host_tokens = 0, disk_tokens = 0;  // of these, loaded from there
    std::int64_t drafted_tokens = 0, accepted_tokens = 0;
    std::int64_t disk_waits = 0;   // sequences that have waited for files
    double disk_wait_seconds = 0;  // of all of them
};

// A new token of a sequence. With accepted draft tokens a sequence gets several in a step, in order.
struct progress {
    sequence_id id;
    int token;
    finish_reason reason;   // none: it continues
    int sample = 0;         // which of the sampled tokens it is
    bool accepted = false;  // it was a draft token
    int cached = 0;         // tokens of the prompt that came from the prefix cache
};

class scheduler {
  public:
    explicit scheduler(block_manager blocks, scheduler_options options = {});

    // Adds `samples` sequences. Throws if context or KV cache can never hold the request.
    std::vector<sequence_id> add(const request& wanted);

    // A new sequence that continues from the current tokens of this one, with another seed.
    sequence_id fork(sequence_id id, std::uint64_t seed);

    // Ends a sequence at any time, also while a batch is in flight. False if it has ended or never existed.
    bool end(sequence_id id, finish_reason reason);
    bool cancel(sequence_id id) { return end(id, finish_reason::cancelled); }

    // The next batch; without entries if no sequence can run: none is there, or all wait for files. Pass it to finish, or
    // to abandon if it failed: its sequences are then recomputed.
    // Between schedule and finish, add_draft may give its entries up to max_draft tokens. A sequence keeps the sampled
    // tokens up to the first that differs from its draft: those that it would get one by one.
    batch schedule();
    // The batch after `running`, which is in flight. The tokens that it samples are not known yet: entries name their rows
    // (batch_entry::input_row). A sequence that ends with its token is part of the next batch nevertheless; its row is
    // dropped. Nothing if that batch needs the tokens (penalties, constraints), or if it needs a preemption or has no
    // work: schedule it after finish.
    std::optional<batch> schedule_ahead(const batch& running);
    // Of the oldest batch in flight.
    std::vector<progress> finish(const batch& done, std::span<const int> sampled);
    // The same, when the runner has no batch any more: those that are still in flight must be abandoned as well.
    void abandon(const batch& failed);

    // Until a sequence has its files, or for this time; at once if none waits for files.
    void wait_for_files(std::chrono::milliseconds most);

    // A batch without entries that saves blocks of the prefix cache for the disk level, as many as host memory takes, each
    // once. Without moves: all are saved, or cannot be. Pass it to finish or abandon if it has moves.
    batch save_cached();

    // Fewer tokens per batch than the options allow, for short steps; prompts then take more of them.
    void limit_batched_tokens(int tokens);

    bool idle() const { return sequences_.empty(); }
    int running() const { return static_cast<int>(running_.size()); }
    int waiting() const { return static_cast<int>(waiting_.size()); }  // also for files
    int loading() const;                                               // for files alone
    const sequence* find(sequence_id id) const;                        // null once it has ended
    const block_manager& blocks() const { return blocks_; }
    const scheduler_counts& counts() const { return counts_; }

  private:
    using pointer = std::shared_ptr<sequence>;
    struct goes_first {
        bool operator()(const pointer& a, const pointer& b) const {
            return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
        }
    };
    bool knows_enough_after(const batch& running) const;
    void advance(const batch& running);
    void take_back(const batch& running);
    static void drop_unknown_token(sequence& it);
    bool append_blocks_without_preemption();
    void complete(batch& next);
    void append_blocks();
    void admit_waiting(batch& next);
    void fill_batch(batch& next);
    void allow_drafts(batch& next, int budget);
    static finish_reason append(sequence& it, int token);
    int wanted(const sequence& it) const;

    // For the next token.
    bool has_blocks(const sequence& it) const { return blocks_.capacity(it.block_table) > it.num_computed_tokens; }
    bool waits_for_parent(const sequence& it) const;
    bool waits_for_files(sequence& it);
    std::span<const int> findable_tokens(const sequence& it) const;
    std::optional<cached_prefix> preempt_until_fits(const sequence& it);
    cached_prefix prefix_of(const sequence& it) const;
    void start(const pointer& it, const cached_prefix& known, batch& next);
    void preempt_last();
    void release_batch(const batch& past);
    int in_flight() const { return static_cast<int>(scheduled_ - released_); }

    block_manager blocks_;
    scheduler_options options_;
    int token_budget_;
    scheduler_counts counts_;
    sequence_id next_id_ = 0;
    int num_ending_ = 0;  // while a batch is scheduled ahead: running sequences that the batch in flight completes
    bool prefill_turn_ = false;  // with separate_prefill: whether the last batch was a prefill
    struct ended_sequence {
        pointer sequence;
        std::int64_t last_batch;  // that may read and write its blocks
    };
    std::int64_t scheduled_ = 0, released_ = 0;    // batches; those between them are in flight
    std::vector<ended_sequence> ended_in_flight_;  // their blocks are still held
    std::unordered_map<sequence_id, pointer> sequences_;
    std::set<pointer, goes_first> waiting_, running_;
    std::unordered_map<sequence_id, std::shared_ptr<disk_read>> reads_;  // of waiting sequences
};

}  // namespace imbrex::engine
