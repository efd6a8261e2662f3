// Which sequences compute which of their tokens next. Every step takes a token of each sequence that decodes, and fills what is left
// of its budget with pieces of prompts, so that a long prompt delays nobody's next token. Order is priority, then arrival, everywhere:
//
//   append_blocks  running sequences get the block that their next token needs; if there is none, the last in order is preempted
//   admit     waiting sequences start, the first in order first, and only with blocks for all the tokens they have; they may preempt
//             those of lower priority
//   fill      the batch
//
// The first in order always finds its block, since all others can be preempted: so every step gets nearer to the end. A preempted sequence
// gives up its blocks and waits; later it finds in the cache what is still there, and computes the rest again. Not thread-safe.
#pragma once

#include "engine/serving/batch.hpp"
#include "engine/serving/block_manager.hpp"
#include "engine/serving/sequence.hpp"

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

namespace imbrex::engine {

struct scheduler_options {
    int context = 2048;  // the most tokens a sequence may have
    int max_num_batched_tokens =
        2048;                // the most tokens computed in a step; at least max_num_seqs, so that all can decode
    int max_num_seqs = 256;  // the most sequences that run at a time
    // Tokens of prompts and generated ones are never in one batch, and only blocks of prompts are found again: for a runner that computes the two
    // by different kernels, so that it depends on a token's place alone by which.
    bool separate_prefill = false;
};

struct scheduler_counts {
    std::int64_t preemptions = 0;
    std::int64_t copies = 0;         // of blocks
    std::int64_t prompt_tokens = 0;  // what sequences had when they started or went on
    std::int64_t cached_tokens = 0;  // what of that did not have to be computed
};

// What a step did for a sequence that got a token.
struct progress {
    sequence_id id;
    int token;
    finish_reason reason;  // none: it goes on
};

class scheduler {
  public:
    explicit scheduler(block_manager blocks, scheduler_options options = {});

    // As many sequences as the request wants samples. One that could never run to its end is refused.
    std::vector<sequence_id> add(const request& wanted);

    // Another sequence that goes on from what this one has now, with another seed.
    sequence_id fork(sequence_id id, std::uint64_t seed);

    // Ends a sequence at any time, even between schedule and finish. False if there is none (any more).
    bool end(sequence_id id, finish_reason reason);
    bool cancel(sequence_id id) { return end(id, finish_reason::cancelled); }

    // The next batch, which has to be given to finish, or to abandon if it could not be run: then its sequences start again.
    batch schedule();
    std::vector<progress> finish(const batch& done, std::span<const int> sampled);
    void abandon(const batch& failed);

    bool idle() const { return sequences_.empty(); }
    int running() const { return static_cast<int>(running_.size()); }
    int waiting() const { return static_cast<int>(waiting_.size()); }
    const sequence* find(sequence_id id) const;  // null once it has ended
    const block_manager& blocks() const { return blocks_; }
    const scheduler_counts& counts() const { return counts_; }

  private:
    using pointer = std::shared_ptr<sequence>;
    struct goes_first {
        bool operator()(const pointer& a, const pointer& b) const {
            return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
        }
    };
    struct prefix {
        std::vector<int> blocks;
        int tokens = 0;
    };

    void append_blocks();
    void admit_waiting(batch& next);
    void fill_batch(batch& next);
    int wanted(const sequence& it) const;

    bool has_blocks(const sequence& it) const {
        return blocks_.blocks_for(it.length()) <= static_cast<int>(it.block_table.size());
    }
    bool waits_for_parent(const sequence& it) const;
    bool preempt_until_fits(const sequence& it);
    bool fits(const sequence& it) const;
    prefix cached_prefix(const sequence& it) const;
    void start(const pointer& it, batch& next);
    void preempt_last();
    void release_batch(const batch& past);

    block_manager blocks_;
    scheduler_options options_;
    scheduler_counts counts_;
    sequence_id next_id_ = 0;
    bool prefill_turn_ = false;             // whether the last batch was of prompts, if kinds are apart
    bool in_flight_ = false;                // a batch was given, and has not come back
    std::vector<pointer> ended_in_flight_;  // ended meanwhile
    std::unordered_map<sequence_id, pointer> sequences_;
    std::set<pointer, goes_first> waiting_, running_;
};

}  // namespace imbrex::engine
