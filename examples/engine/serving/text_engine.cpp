#include "engine/serving/text_engine.hpp"

#include <algorithm>
#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/grammar/token_trie.hpp"
#include "engine/model/cuda_runner.hpp"
#include "engine/model/kv_cache_layout.hpp"

#include "engine/model/weight_mixture.hpp"

namespace imbrex::engine {

namespace {

int context_of(const model_files& files, const engine_options& options) {
    require(options.context >= 0 && options.context <= files.config.context, "context: ", options.context,
            "; the model was made for ", files.config.context, " tokens at most");
    return options.context == 0 ? files.config.context : options.context;
}

runner_options runner_options_of(const model_files& files, const engine_options& options, int context) {
    require(options.max_num_seqs >= 1, "sequences: ", options.max_num_seqs, "; it must be at least 1");
    require(options.max_num_batched_tokens >= 1, "batch tokens: ", options.max_num_batched_tokens,
            "; it must be at least 1");
    require(options.kv_cache_bytes >= 0, "memory: ", options.kv_cache_bytes, "; it must be positive");
    runner_options result{.where = options.where,
                          .weights = options.weights,
                          .bits_per_weight = options.bits_per_weight,
                          .kv_cache = options.kv_cache,
                          .max_num_batched_tokens = options.max_num_batched_tokens,
                          .max_num_seqs = std::min(options.max_num_seqs, options.max_num_batched_tokens),
                          .context = context,
                          .batch_invariant = options.batch_invariant && options.where == world::device};
    return with_kv_blocks(files.config, result, options.kv_cache_bytes);
}

std::unique_ptr<runner> load_runner(model_files& files, runner_options& options, const loading_progress& progress) {
    mix_weights(files, options, progress);
    std::unique_ptr<runner> made = make_runner(files, options, progress);
    if (options.where == world::device) files.weights = {};  // they were copied
    return made;
}

}  // namespace

const char* name_of(finish_reason reason) {
    switch (reason) {
        case finish_reason::none:
            break;
        case finish_reason::eos_token:
            return "end";
        case finish_reason::stop_string:
            return "stop";
        case finish_reason::length:
            return "length";
        case finish_reason::cancelled:
            return "cancelled";
        case finish_reason::complete:
            return "end";
    }
    return "";
}

text_engine::text_engine(model_files files, const engine_options& options, const loading_progress& progress)
    : files_(std::move(files)),
      context_(context_of(files_, options)),
      runner_options_(runner_options_of(files_, options, context_)),
      runner_(load_runner(files_, runner_options_, progress)),
      engine_(*runner_, block_manager(kv_cache_groups(files_.config, runner_options_), runner_options_.block_size),
              {.context = context_,
               .max_num_batched_tokens = runner_options_.max_num_batched_tokens,
               .max_num_seqs = runner_options_.max_num_seqs,
               .separate_prefill = runner_options_.batch_invariant},
              [this] { return make_detokenizer(); }),
      energy_(runner_options_.where == world::device ? cuda_bus_id() : std::string()) {}

detokenize_function text_engine::make_detokenizer() const {
    return [this, decoder = incremental_detokenizer(files_.tokens, adding_.position, adding_.special)](
               std::optional<int> id) mutable -> std::string {
        if (!id) return decoder.finish();
        // The embedding may have more rows than the vocabulary has tokens (padding).
        return *id < files_.tokens.size() ? decoder.push(*id) : std::string();
    };
}

std::vector<int> text_engine::encode_prompt(std::string_view text, bool parse_special) const {
    std::vector<int> ids = files_.tokens.prefix_ids();
    const std::vector<int> rest =
        files_.tokens.encode(text, {.add_special_tokens = false, .parse_special = parse_special});
    // The prompt may begin with the same special tokens.
    const bool has_them =
        parse_special && !ids.empty() && rest.size() >= ids.size() && std::equal(ids.begin(), ids.end(), rest.begin());
    if (has_them) return rest;
    ids.insert(ids.end(), rest.begin(), rest.end());
    if (ids.empty() && files_.config.bos_token) ids.push_back(*files_.config.bos_token);
    return ids;
}

sequence_id text_engine::submit(std::vector<int> prompt, const text_options& options) {
    const auto check_token = [&](const char* where, int id) {
        require(id >= 0 && id < files_.config.vocab_size, where, ": token ", id, "; the model has ",
                files_.config.vocab_size);
    };
    for (const int id : prompt) check_token("prompt", id);
    for (const auto& [id, bias] : options.sampling.bias) check_token("bias", id);
    request wanted{.prompt = std::move(prompt),
                   .max_new_tokens = options.max_tokens,
                   .eos_tokens = {},
                   .sampling = options.sampling,
                   .priority = options.priority};
    wanted.sampling.drops_space =
        files_.tokens.has_prefix_space() && options.position == incremental_detokenizer::text_position::beginning;
    if (options.ends) {
        wanted.eos_tokens = files_.config.eos_tokens;
        wanted.eos_tokens.insert(wanted.eos_tokens.end(), options.eos_tokens.begin(), options.eos_tokens.end());
    }
    adding_ = options;
    return engine_.add(wanted).front();
}

std::shared_ptr<const token_trie> text_engine::token_trie() const {
    std::call_once(trie_is_made_, [this] {
        trie_ = std::make_shared<const imbrex::engine::token_trie>(files_.tokens, files_.config.vocab_size);
    });
    return trie_;
}

statistics_summary text_engine::summary_with_energy() const {
    statistics_summary all = engine_.summary();
    const energy_reading energy = energy_.read();
    all.gpu_joules = energy.gpu_joules;
    all.cpu_joules = energy.cpu_joules;
    return all;
}

std::vector<text_event> text_engine::step() {
    constexpr double seconds_between_readings = 60;  // some counters begin again after twenty minutes
    if (const double now = statistics::steady_seconds(); now - energy_was_read_ > seconds_between_readings) {
        energy_.read();
        energy_was_read_ = now;
    }
    std::vector<text_event> events;
    for (event& each : engine_.step())
        events.push_back({each.id, std::move(each.text), each.reason, {.token = each.token}});
    // No sequence is cancelled within a step, so each sampled token is one event, in the same order.
    const std::vector<sampled_token>& sampled = runner_->last_sampled();
    for (std::size_t i = 0; i < events.size() && events.size() == sampled.size(); ++i) events[i].sampled = sampled[i];
    return events;
}

int text_engine::max_sequence_length() const {
    return static_cast<int>(std::min<std::int64_t>(context_, engine_.blocks().max_sequence_tokens()));
}

}  // namespace imbrex::engine
