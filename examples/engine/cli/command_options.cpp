// Options that several commands have.
#include "engine/cli/command_options.hpp"

#include <CLI/CLI.hpp>

#include "engine/serving/sampling_params.hpp"

namespace imbrex::engine {

namespace {

constexpr const char* model_group = "The model";

// Escape sequences such as "\n" on the command line.
std::string unescaped(const std::string& text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
        const bool is_escape = next == 'n' || next == 't' || next == '\\';
        result += !is_escape ? text[i] : next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
        if (is_escape) ++i;
    }
    return result;
}

// Levels of the prefix cache below the KV cache.
void add_cache_options(CLI::App& app, model_args& model) {
    constexpr const char* group = "The prefix cache";
    app.add_option("--cache-host", model.host_cache,
                   "host memory for blocks that leave the KV cache, such as 20G: prompts find them again (none)")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->type_name("SIZE")
        ->group(group);
    app.add_option("--cache-disk", model.disk_cache,
                   "the same in files of --cache-dir, which the next start of the same model finds (none)")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->type_name("SIZE")
        ->group(group);
    app.add_option("--cache-dir", model.cache_directory, "folder of these files")->type_name("FOLDER")->group(group);
    app.add_option("--cache-compress", model.cache_compression, "compress the files, if the program has the library")
        ->check(CLI::IsMember({"none", "zlib", "zstd"}))
        ->capture_default_str()
        ->group(group);
    app.add_flag("--cache-8bit", model.cache_is_quantised,
                 "8-bit numbers in the files instead of 16-bit ones: half the size, texts may change slightly")
        ->group(group);
    app.add_option("--cache-policy", model.cache_policy, "what leaves a full level: least recently or frequently used")
        ->check(CLI::IsMember({"lru", "lfu"}))
        ->capture_default_str()
        ->group(group);
}

}  // namespace

CLI::Validator between(int least, int most) {
    return CLI::Range(least, most).description("");
}

CLI::Option* add_path(CLI::App& app, std::string& path) {
    return app.add_option("model", path, "folder, .gguf file or .bin file")->type_name("MODEL");
}

void add_random_options(CLI::App& app, model_args& model, CLI::Option* path) {
    app.add_option("--random", model.random,
                   "random weights of this architecture, instead of a model: to measure speed")
        ->excludes(path);
    app.add_option("--random-type", model.random_type, "their type: bf16, q4_K_M, mxfp4_moe, q6_K, ...")
        ->excludes(path)
        ->capture_default_str();
}

CLI::Option* add_budget(CLI::App& app, std::optional<double>& bits) {
    return app
        .add_option("--weights-budget", bits,
                    "bits per weight of --weights mixed (5): the type of each matrix is chosen by its measured error")
        ->check(CLI::Range(1.0, 32.0).description(""))
        ->type_name("BITS");
}

void add_device_options(CLI::App& app, model_args& model) {
    constexpr const char* group = model_group;
    app.add_option("--device", model.device, "auto: on a GPU if there is one")
        ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
        ->capture_default_str()
        ->group(group);
    app.add_option("--weights", model.weights, "convert matrices to this format on load")
        ->check(CLI::IsMember({"file", "f32", "f16", "bf16", "e4m3", "int8", "int4", "mixed"}))
        ->capture_default_str()
        ->group(group);
    add_budget(app, model.weights_budget)->group(group);
    app.add_option("--kv-cache", model.kv_cache,
                   "type of the KV cache; auto: f16 on a CPU, bf16 on a GPU. e4m3 has 8 bits")
        ->check(CLI::IsMember({"auto", "f32", "f16", "bf16", "e4m3"}))
        ->capture_default_str()
        ->group(group);
    app.add_option("--threads", model.threads, "CPU cores to use (all)")->check(between(1, 4096))->group(group);
}

void add_model_options(CLI::App& app, model_args& model) {
    constexpr const char* group = model_group;
    add_device_options(app, model);
    app.add_option("--memory", model.memory,
                   "maximum size of the KV cache, such as 500M (default: 2G; in bench as large as needed)")
        ->transform(CLI::AsSizeValue(false).description(""))
        ->type_name("SIZE")
        ->group(group);
    app.add_option("--context", model.context, "maximum tokens of a sequence, prompt included (the model's context)")
        ->check(between(2, 1 << 26))
        ->group(group);
    app.add_option("--batch-tokens", model.max_num_batched_tokens,
                   "maximum tokens of a step, the token budget (512 on a CPU, 4096 on a GPU)")
        ->check(between(1, 1 << 20))
        ->group(group);
    app.add_flag("--invariant", model.batch_invariant,
                 "batch invariance on a GPU: texts do not depend on the batch; slower (always so on a CPU)")
        ->group(group);
    app.add_flag("!--no-overlap", model.overlaps,
                 "on a GPU: launch a step only after the texts of the one before have been handed over")
        ->group(group);
    app.add_option("--speculate", model.speculate,
                   "draft tokens, checked by the model in one step: from the text so far (ngram) or from --draft-model "
                   "(model). The same text, sooner")
        ->check(CLI::IsMember({"off", "ngram", "model"}))
        ->group(group);
    app.add_option("--draft-model", model.draft_model, "a smaller model with the same vocabulary")
        ->type_name("MODEL")
        ->group(group);
    app.add_option("--draft-tokens", model.draft_tokens, "maximum draft tokens of a sequence in a step")
        ->check(between(1, 128))
        ->capture_default_str()
        ->group(group);
    add_cache_options(app, model);
    app.add_flag("--stats", model.shows_statistics, "print statistics at the end, on standard error")->group(group);
    app.add_flag("--json", model.statistics_are_json, "print the statistics as one line of JSON")->group(group);
}

void add_text_options(CLI::App& app, generation_args& text) {
    constexpr const char* group = "The text";
    sampling_params& sampling = text.sampling;
    const auto add = [&](const char* name, auto& value, const char* meaning) {
        return app.add_option(name, value, meaning)->group(group);
    };
    add("-n,--max-tokens", text.max_tokens, "maximum new tokens")->check(between(1, 1 << 26));
    add("-t,--temperature", sampling.temperature, "0: greedy")->capture_default_str();
    add("--top-k", sampling.top_k, "keep the k most likely tokens; 0: all")->capture_default_str();
    add("--top-p", sampling.top_p, "keep the most likely tokens up to this cumulative probability")
        ->capture_default_str();
    add("--min-p", sampling.min_p, "keep tokens with at least this fraction of the highest probability")
        ->capture_default_str();
    add("--repetition-penalty", sampling.repetition_penalty, "for prompt and generated tokens; 1: none")
        ->capture_default_str();
    add("--presence-penalty", sampling.presence_penalty, "for generated tokens")->capture_default_str();
    add("--frequency-penalty", sampling.frequency_penalty, "for generated tokens, per occurrence")
        ->capture_default_str();
    add("--seed", text.seed, "the same seed gives the same text");
    app.add_option_function<std::vector<std::string>>(
           "--stop",
           [&sampling](const std::vector<std::string>& all) {
               for (const std::string& each : all) sampling.stop.push_back(unescaped(each));
           },
           "end the text before this string; repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("TEXT")
        ->group(group);
    const auto schema =
        add("--json-schema", text.json_schema, "the text is a JSON document of the schema in this file");
    schema->type_name("FILE");
    add("--regex", text.regex, "the text matches this regular expression")->excludes(schema);
    add("--logprobs", sampling.logprobs, "log-probabilities of each token and of this many top tokens")
        ->check(between(0, max_logprobs));
}

void add_template_options(CLI::App& app, template_args& format) {
    app.add_option(
           "--template", format.name,
           "chat template: auto (the model's own, or by its special tokens), none, llama2, llama3, chatml, or a file")
        ->capture_default_str();
    app.add_option("--set", format.variables, "variable of the template, name=value; repeatable")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->type_name("NAME=VALUE");
}

}  // namespace imbrex::engine
