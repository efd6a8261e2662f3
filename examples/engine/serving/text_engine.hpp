// A model with text in and out: model files, runner, serving loop and tokenizer. Programs submit prompts and call
// step() until no work is left; each step returns the new text of each sequence as events. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/loading/model_files.hpp"
#include "engine/model/runner.hpp"
#include "engine/serving/cache_options.hpp"
#include "engine/serving/energy_meter.hpp"
#include "engine/serving/engine.hpp"
#include "engine/serving/speculation_options.hpp"
#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

class token_trie;

struct engine_options {
    world where = world::host;
    weight_format weights = weight_format::as_in_file;
    double bits_per_weight = usual_bits_per_weight;  // of mixed weights
    kv_cache_format kv_cache = kv_cache_format::by_device;
    std::int64_t kv_cache_bytes = 0;   // upper limit of the KV cache; 0: enough for max_num_seqs full contexts
    int context = 0;                   // maximum tokens of a sequence; 0: the model's context
    int max_num_batched_tokens = 512;  // token budget of a step
    int max_num_seqs = 64;             // maximum running sequences; at most max_num_batched_tokens
    bool batch_invariant = false;      // on a GPU: texts do not depend on the batch (cost: docs/engine.md)
    bool overlap = true;               // on a GPU: the next step is launched while one runs
    speculation_options speculation{};
    prefix_cache_options cache{};  // levels of the prefix cache below the KV cache (docs/prefix_cache.md)
};

struct text_options {
    int max_tokens = 0;  // new tokens; 0: as many as fit
    sampling_params sampling{};
    std::vector<int> eos_tokens{};  // in addition to the model's
    bool ends = true;               // false: ignore EOS, for benchmarks
    int priority = 0;
    pooling_mode pooling = pooling_mode::none;  // an embedding instead of a text, with max_tokens = 1
    incremental_detokenizer::text_position position =
        incremental_detokenizer::text_position::continuation;  // position of the text after the prompt
    tokenizer::special_tokens special = tokenizer::special_tokens::hidden;
};

struct text_event {
    sequence_id id = 0;
    std::string text{};  // new text
    finish_reason reason = finish_reason::none;
    sampled_token sampled{};
    int cached_tokens = 0;  // of the prompt, from the prefix cache
};

// "end", "stop", "length" or "cancelled"; "" while the sequence continues.
const char* name_of(finish_reason reason);

class text_engine {
  public:
    explicit text_engine(model_files files, const engine_options& options = {}, const loading_progress& progress = {});
    text_engine(const text_engine&) = delete;
    text_engine& operator=(const text_engine&) = delete;
    ~text_engine();  // writes the prefix cache to its files

    // The token ids of a prompt, with the special tokens that the vocabulary puts before a text. Not empty if the model
    // has a BOS token. With parse_special the names of special tokens in the text become those tokens.
    std::vector<int> encode_prompt(std::string_view text, bool parse_special = false) const;

    // Throws if the request can never be served.
    sequence_id submit(std::vector<int> prompt, const text_options& options);
    sequence_id submit(std::string_view prompt, const text_options& options) {
        return submit(encode_prompt(prompt), options);
    }
    bool cancel(sequence_id id) { return engine_.cancel(id); }

    std::vector<text_event> step();
    const std::vector<sequence_id>& failed_batch() const { return engine_.failed_batch(); }  // when step() has thrown
    // Fewer tokens per step than engine_options allow: shorter steps, which can be interrupted sooner.
    void limit_batched_tokens(int tokens) { engine_.limit_batched_tokens(tokens); }
    bool idle() const { return engine_.idle(); }
    // Writes what is cached to the files of the disk level, if there is one and no step runs.
    void save_cache();

    // Maximum tokens of a sequence, by context and KV cache.
    int max_sequence_length() const;
    int blocks() const { return runner_options_.num_kv_blocks; }
    const block_manager& cache() const { return engine_.blocks(); }
    const step_load& last_step() const { return engine_.last_step(); }
    // The bytes of the vocabulary, for constraints (grammar/structured_output.hpp); made by the first call. Thread-safe.
    std::shared_ptr<const imbrex::engine::token_trie> token_trie() const;
    const tokenizer& tokens() const { return files_.tokens; }
    const model_config& config() const { return files_.config; }
    const chat_source& chat() const { return files_.chat; }
    statistics_summary summary() const { return engine_.summary(); }
    // With the energy that the devices have used since the start; reading the counters takes a millisecond.
    statistics_summary summary_with_energy() const;

  private:
    block_manager make_block_manager() const;
    void report_cache_messages();
    detokenize_function make_detokenizer() const;

    model_files files_;  // a runner may use the mapped weights in place
    int context_;
    runner_options runner_options_;
    prefix_cache_options cache_options_;
    std::string cache_description_;
    std::shared_ptr<disk_level> disk_;
    std::unique_ptr<runner> runner_;
    text_options adding_;  // of the sequence being added
    engine<runner> engine_;
    mutable energy_meter energy_;
    double energy_was_read_ = 0;
    mutable std::once_flag trie_is_made_;
    mutable std::shared_ptr<const imbrex::engine::token_trie> trie_;
};

// The number of new tokens that fit after a prompt of this length, at most `wanted`.
inline int tokens_that_fit(const text_engine& model, std::size_t prompt, int wanted) {
    const auto left = static_cast<std::int64_t>(model.max_sequence_length()) - static_cast<std::int64_t>(prompt);
    return static_cast<int>(std::max<std::int64_t>(std::min<std::int64_t>(left, wanted), 1));
}

}  // namespace imbrex::engine
