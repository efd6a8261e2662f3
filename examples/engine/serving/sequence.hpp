// A request and its sequence: prompt and generated tokens, and the blocks of the KV cache that hold the computed ones.
// Only the scheduler modifies a sequence; runners read it.
#pragma once

#include "engine/serving/block_table.hpp"
#include "engine/serving/pooled_state.hpp"
#include "engine/serving/sampling_params.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace imbrex::engine {

// Increases in the order of arrival; never reused.
using sequence_id = std::int64_t;

struct request {
    std::vector<int> prompt;
    int max_new_tokens = 0;       // 0: as many as context and KV cache allow
    std::vector<int> eos_tokens;  // each of these ends the sequence
    sampling_params sampling;
    int samples = 1;                            // number of sequences; sample n equals a separate request with seed + n
    int priority = 0;                           // higher runs first
    pooling_mode pooling = pooling_mode::none;  // an embedding is wanted: one new token at most, which means nothing
};

// loading: it waits for blocks of its prefix that are in files.
enum class sequence_state { waiting, loading, running, finished, cancelled };
// Stands for a token that the batch in flight samples.
inline constexpr int unknown_token = -1;

// complete: nothing can follow in the constraint of the text.
enum class finish_reason { none, eos_token, stop_string, length, cancelled, complete };

struct sequence {
    sequence_id id = 0;
    std::vector<int> tokens{};  // prompt, then generated tokens
    int num_prompt_tokens = 0;
    int max_total_tokens = 0;     // the sequence ends at this length
    int num_computed_tokens = 0;  // leading tokens that are in the KV cache
    imbrex::engine::block_table block_table{};
    std::vector<int> eos_tokens{};
    sampling_params sampling{};
    constraint_progress constraint{};  // of the generated tokens
    int unknown_row = -1;              // the last token is unknown_token: the batch in flight samples it in this row
    int priority = 0;
    pooling_mode pooling = pooling_mode::none;
    std::shared_ptr<pooled_state> pooled{};  // with pooling; of the runner
    int num_cached_tokens = -1;              // found in the prefix cache at its first start; -1: it has not started
    sequence_id parent = -1;                 // a fork waits for this sequence and then shares its blocks
    sequence_state state = sequence_state::waiting;
    finish_reason reason = finish_reason::none;

    int length() const { return static_cast<int>(tokens.size()); }
    int generated() const { return length() - num_prompt_tokens; }
    int num_uncomputed_tokens() const { return length() - num_computed_tokens; }  // 1 during decode
    bool has_unknown_token() const { return unknown_row >= 0; }
    // Nothing is left to compute.
    bool is_complete() const { return length() >= max_total_tokens; }
    bool is_prefill() const { return num_computed_tokens < num_prompt_tokens; }
};

}  // namespace imbrex::engine
