// A request, and what becomes of it: a sequence of tokens, the prompt's and those generated since, with the blocks of the cache that hold
// what was computed of them. The scheduler alone changes a sequence; a runner reads it.
#pragma once

#include "engine/serving/sampling_params.hpp"

#include <cstdint>
#include <vector>

namespace imbrex::engine {

// Given in the order of arrival, and never twice.
using sequence_id = std::int64_t;

struct request {
    std::vector<int> prompt;
    int max_new_tokens = 0;       // 0: as many as context and cache allow
    std::vector<int> eos_tokens;  // any of these ends the text
    sampling_params sampling;
    int samples = 1;   // how many texts; sample n is what a request of its own with seed + n would give
    int priority = 0;  // the higher, the sooner
};

enum class sequence_state { waiting, running, finished, cancelled };
enum class finish_reason { none, eos_token, stop_string, length, cancelled };

struct sequence {
    sequence_id id = 0;
    std::vector<int> tokens{};  // the prompt, then what was generated
    int num_prompt_tokens = 0;
    int max_total_tokens = 0;        // it ends when it has so many
    int num_computed_tokens = 0;     // how many of the tokens, from the first, are in the cache
    std::vector<int> block_table{};  // block i holds tokens [i * block_size, (i + 1) * block_size)
    std::vector<int> eos_tokens{};
    sampling_params sampling{};
    int priority = 0;
    sequence_id parent = -1;  // a fork waits for this sequence, to share its blocks instead of computing them
    sequence_state state = sequence_state::waiting;
    finish_reason reason = finish_reason::none;

    int length() const { return static_cast<int>(tokens.size()); }
    int generated() const { return length() - num_prompt_tokens; }
    int num_uncomputed_tokens() const { return length() - num_computed_tokens; }  // one, while it decodes
    bool is_prefill() const { return num_computed_tokens < num_prompt_tokens; }
};

}  // namespace imbrex::engine
