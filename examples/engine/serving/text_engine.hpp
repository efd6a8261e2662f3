// A model that answers with text: its files, its runner, the serving loop and the tokenizer, put together. Programs submit prompts and call
// step() until there is nothing left to do; what each step adds to each text comes out as events. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "engine/model/runner.hpp"
#include "engine/serving/engine.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

struct engine_options {
    world where = world::host;
    weight_format weights = weight_format::as_in_file;
    std::int64_t kv_cache_bytes =
        0;            // the most that the cache may take; 0: what all sequences with a full context need
    int context = 0;  // the most tokens of a sequence; 0: as many as the model was made for
    int max_num_batched_tokens = 512;  // the most tokens that a step computes
    int max_num_seqs = 64;             // that run at a time; no more than max_num_batched_tokens
    bool batch_invariant =
        false;  // on a GPU: texts do not depend on what else is served (docs/engine.md says what it costs)
};

struct text_options {
    int max_tokens = 0;  // new ones; 0: as many as fit
    sampling_params sampling{};
    std::vector<int> eos_tokens{};  // besides the model's own
    bool ends = true;               // false: only the number of tokens ends the text, for measurements
    int priority = 0;
    incremental_detokenizer::text_position position =
        incremental_detokenizer::text_position::continuation;  // of the text after the prompt
};

struct text_event {
    sequence_id id = 0;
    std::string text{};  // what can be shown now
    finish_reason reason = finish_reason::none;
    sampled_token sampled{};
};

// Whether the tokens end, and where, in a word: "end", "stop", "length", "cancelled"; "" while there is more to come.
const char* name_of(finish_reason reason);

class text_engine {
  public:
    explicit text_engine(model_files files, const engine_options& options = {}, const loading_progress& progress = {});
    text_engine(const text_engine&) = delete;
    text_engine& operator=(const text_engine&) = delete;

    // The ids of a text that a model shall continue: with what the vocabulary puts before a text. Never none, if the model has a token to
    // begin with.
    std::vector<int> encode_prompt(std::string_view text) const;

    // Refuses what can never be computed.
    sequence_id submit(std::vector<int> prompt, const text_options& options);
    sequence_id submit(std::string_view prompt, const text_options& options) {
        return submit(encode_prompt(prompt), options);
    }
    bool cancel(sequence_id id) { return engine_.cancel(id); }

    std::vector<text_event> step();
    bool idle() const { return engine_.idle(); }

    // The most tokens that a sequence can have, by the context and by the cache.
    int max_sequence_length() const;
    int blocks() const { return runner_options_.num_kv_blocks; }
    const tokenizer& tokens() const { return files_.tokens; }
    const model_config& config() const { return files_.config; }
    statistics_summary summary() const { return engine_.summary(); }

  private:
    detokenize_function make_detokenizer() const;

    model_files files_;  // a runner may use the weights where they lie
    int context_;
    runner_options runner_options_;
    std::unique_ptr<runner> runner_;
    incremental_detokenizer::text_position position_ =
        incremental_detokenizer::text_position::continuation;  // of the sequence that is being added
    engine<runner> engine_;
};

// New tokens that have room after a prompt of this length, where `wanted` of them would do.
inline int tokens_that_fit(const text_engine& model, std::size_t prompt, int wanted) {
    const auto left = static_cast<std::int64_t>(model.max_sequence_length()) - static_cast<std::int64_t>(prompt);
    return static_cast<int>(std::max<std::int64_t>(std::min<std::int64_t>(left, wanted), 1));
}

}  // namespace imbrex::engine
