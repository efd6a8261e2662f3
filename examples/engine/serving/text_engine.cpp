#include "engine/serving/text_engine.hpp"

#include <algorithm>
#include <exception>
#include <imbrex/core/error.hpp>
#include <utility>

#include "engine/grammar/token_trie.hpp"
#include "engine/model/cuda_runner.hpp"
#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/steered_runner.hpp"
#include "engine/model/weight_mixture.hpp"
#include "engine/serving/draft_model.hpp"
#include "engine/serving/ngram_proposer.hpp"

namespace imbrex::engine {

namespace {

int context_of(const model_files& files, const engine_options& options) {
    require(options.context >= 0 && options.context <= files.config.context, "context: ", options.context,
            "; the model was made for ", files.config.context, " tokens at most");
    return options.context == 0 ? files.config.context : options.context;
}

// More rows of logits than this take much memory, and drafts do not pay.
constexpr int most_draft_tokens_of_step = 128;

int draft_tokens_of_step(const engine_options& options) {
    const speculation_options& drafts = options.speculation;
    if (drafts.source == draft_source::none) return 0;
    require(drafts.draft_tokens >= 1 && drafts.draft_tokens <= most_draft_tokens_of_step,
            "draft tokens: ", drafts.draft_tokens, "; must be from 1 to ", most_draft_tokens_of_step);
    return std::min(std::max(drafts.draft_tokens * std::min(options.max_num_seqs, most_draft_tokens_of_step), 1),
                    most_draft_tokens_of_step);
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
                          .max_num_draft_tokens = draft_tokens_of_step(options),
                          .context = context,
                          .batch_invariant = options.batch_invariant && options.where == world::device};
    check(options.cache);
    return with_host_slots(files.config, with_kv_blocks(files.config, result, options.kv_cache_bytes),
                           host_cache_bytes(options.cache));
}

std::unique_ptr<runner> load_runner(model_files& files, runner_options& options, const loading_progress& progress) {
    mix_weights(files, options, progress);
    std::unique_ptr<runner> made = make_runner(files, options, progress);
    if (options.where == world::device) files.weights = {};  // they were copied
    return made;
}

std::unique_ptr<runner> load_target(model_files& files, runner_options& options, const speculation_options& drafts,
                                    const loading_progress& progress) {
    std::unique_ptr<runner> made = load_runner(files, options, progress);
    if (!drafts.steered_acceptance) return made;
    return std::make_unique<steered_runner>(std::move(made), *drafts.steered_acceptance);
}

std::unique_ptr<draft_proposer> load_draft_model(const engine_options& target, const model_files& files, int context,
                                                 const loading_progress& progress) {
    require(target.speculation.draft_model != nullptr, "draft model: none; speculation with a model needs one");
    model_files& draft = *target.speculation.draft_model;
    require_same_vocabulary(files.tokens, draft.tokens);
    engine_options own = target;
    own.context = std::min(context, draft.config.context);
    own.speculation = {};
    own.batch_invariant = false;
    runner_options options = runner_options_of(draft, own, own.context);
    options.num_window_kv_blocks = 0;  // a prompt gets all its blocks at once
    std::unique_ptr<runner> made = load_runner(draft, options, progress);
    return std::make_unique<draft_model>(std::move(made),
                                         block_manager(kv_cache_groups(draft.config, options), options.block_size),
                                         draft_model_options{.context = own.context,
                                                             .max_num_batched_tokens = options.max_num_batched_tokens,
                                                             .vocab_size = files.config.vocab_size});
}

std::unique_ptr<draft_proposer> make_proposer(const engine_options& options, const model_files& files, int context,
                                              const loading_progress& progress) {
    if (options.speculation.source == draft_source::model) return load_draft_model(options, files, context, progress);
    ngram_options search;
    if (options.speculation.steered_acceptance) search.min_ngram = 0;
    return std::make_unique<ngram_proposer>(search);
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
      cache_options_(options.cache),
      cache_description_(options.cache.disk_bytes == 0
                             ? std::string()
                             : describe_cache(files_, runner_options_, options.cache.quantised)),
      disk_(make_disk_level(cache_options_, files_.config, runner_options_)),
      runner_(load_target(files_, runner_options_, options.speculation, progress)),
      engine_(
          *runner_, make_block_manager(),
          {.context = context_,
           .max_num_batched_tokens = runner_options_.max_num_batched_tokens,
           .max_num_seqs = runner_options_.max_num_seqs,
           .separate_prefill = runner_options_.batch_invariant,
           .max_draft_tokens = options.speculation.source == draft_source::none ? 0 : options.speculation.draft_tokens,
           .max_num_draft_tokens = runner_options_.max_num_draft_tokens},
          [this] { return make_detokenizer(); }),
      energy_(runner_options_.where == world::device ? cuda_bus_id() : std::string()) {
    report_cache_messages();
    if (options.overlap && runner_options_.where == world::device) engine_.overlap_steps();
    if (options.speculation.source == draft_source::none) return;
    engine_.speculate(speculation(make_proposer(options, files_, context_, progress), options.speculation.depth));
}

text_engine::~text_engine() {
    try {
        save_cache();
    } catch (const std::exception& failure) {
        if (cache_options_.report) cache_options_.report(std::string("disk cache: ") + failure.what());
    }
}

void text_engine::save_cache() {
    if (!disk_) return;
    disk_->flush();
    while (engine_.save_cached()) disk_->flush();
    report_cache_messages();
}

void text_engine::report_cache_messages() {
    if (!disk_) return;
    for (const std::string& each : disk_->take_messages()) {
        if (cache_options_.report) cache_options_.report(each);
    }
}

block_manager text_engine::make_block_manager() const {
    block_manager made(kv_cache_groups(files_.config, runner_options_), runner_options_.block_size);
    if (!runner_options_.host_slots.empty()) {
        made.add_lower_levels({.host_slots = runner_options_.host_slots,
                               .policy = cache_options_.policy,
                               .disk = disk_,
                               .store = runner_.get(),
                               .root_key = first_key(cache_description_)});
    }
    return made;
}

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
                   .priority = options.priority,
                   .pooling = options.pooling};
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
    report_cache_messages();
    for (event& each : engine_.step())
        events.push_back({each.id, std::move(each.text), each.reason, std::move(each.sampled), each.cached_tokens});
    return events;
}

int text_engine::max_sequence_length() const {
    return static_cast<int>(std::min<std::int64_t>(context_, engine_.blocks().max_sequence_tokens()));
}

}  // namespace imbrex::engine
