#include "engine/cli/command_model.hpp"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <imbrex/core/error.hpp>
#include <iostream>
#include <iterator>
#include <random>
#include <utility>

#include "engine/cli/interrupt_guard.hpp"
#include "engine/cli/progress_bar.hpp"
#include "engine/loading/random_model.hpp"
#include "engine/model/cuda_runner.hpp"
#include "engine/tokenizer/utf8.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

namespace imbrex::engine {

namespace {

world world_of(const std::string& device) {
    if (device == "cpu") return world::host;
    if (device == "auto") return has_cuda() ? world::device : world::host;
    require(has_cuda(), "--device: cuda; this program finds no GPU, or was built without CUDA; cpu and auto work");
    return world::device;
}

// The host world starts one thread per core of the machine; the CPU affinity of the process limits them.
void limit_threads(int threads) {
    if (threads == 0) return;
#if defined(__linux__)
    cpu_set_t allowed, kept;
    CPU_ZERO(&kept);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    for (int core = 0; core < CPU_SETSIZE && threads > 0; ++core) {
        if (!CPU_ISSET(core, &allowed)) continue;
        CPU_SET(core, &kept);
        --threads;
    }
    sched_setaffinity(0, sizeof kept, &kept);
#else
    require(false, "--threads: ", threads, "; this system cannot limit a program to some of its cores");
#endif
}

// Model output for a terminal, without control characters.
std::string harmless(const std::string& text) {
    std::string result;
    for (std::string_view left = text; !left.empty();) {
        const code_point next = first_code_point(left);
        const bool controls = next.value != '\n' && next.value != '\t' &&
                              (next.value < 0x20 || (next.value >= 0x7f && next.value < 0xa0));
        result += controls ? std::string_view("\ufffd") : left.substr(0, static_cast<std::size_t>(next.length));
        left.remove_prefix(static_cast<std::size_t>(next.length));
    }
    return result;
}

}  // namespace

bool is_terminal(const std::istream& stream) {
    return stream.rdbuf() == std::cin.rdbuf() && isatty(STDIN_FILENO);
}

bool is_terminal(const std::ostream& stream) {
    if (stream.rdbuf() == std::cout.rdbuf()) return isatty(STDOUT_FILENO);
    return stream.rdbuf() == std::cerr.rdbuf() && isatty(STDERR_FILENO);
}

speculation_options speculation_of(const model_args& choice) {
    const bool has_model = !choice.draft_model.empty();
    const std::string source = choice.speculate.empty() ? has_model ? "model" : "off" : choice.speculate;
    require(has_model == (source == "model"), "--speculate ", source, ": there is ", has_model ? "a" : "no",
            " --draft-model; it belongs to --speculate model");
    speculation_options made{.draft_tokens = choice.draft_tokens};
    if (source == "ngram") made.source = draft_source::ngram;
    if (!has_model) return made;
    made.source = draft_source::model;
    made.draft_model = std::make_shared<model_files>(open_model(choice.draft_model));
    return made;
}

engine_options options_of(const model_args& choice) {
    limit_threads(choice.threads);
    const world where = world_of(choice.device);
    const auto bytes = [](std::uint64_t size) {
        return static_cast<std::int64_t>(std::min<std::uint64_t>(size, INT64_MAX));
    };
    return {.where = where,
            .weights = weight_format_named(choice.weights),
            .bits_per_weight = mixture_size(choice.weights, choice.weights_budget),
            .kv_cache = kv_cache_format_named(choice.kv_cache),
            .kv_cache_bytes = bytes(choice.memory),
            .context = choice.context,
            .max_num_batched_tokens = choice.max_num_batched_tokens.value_or(where == world::device ? 4096 : 512),
            .max_num_seqs = choice.sequences,
            .batch_invariant = choice.batch_invariant,
            .overlap = choice.overlaps,
            .speculation = speculation_of(choice),
            .cache = {.host_bytes = bytes(choice.host_cache),
                      .disk_bytes = bytes(choice.disk_cache),
                      .directory = choice.cache_directory,
                      .policy = choice.cache_policy == "lfu" ? cache_policy::lfu : cache_policy::lru,
                      .compression = choice.cache_compression == "zlib"   ? cache_compression::zlib
                                     : choice.cache_compression == "zstd" ? cache_compression::zstd
                                                                          : cache_compression::none,
                      .quantised = choice.cache_is_quantised,
                      .report = [](const std::string& message) { std::cerr << "imbrex: " << message << "\n"; }}};
}

model_files open_model(const model_args& choice, std::ostream& err) {
    require(choice.path.empty() != choice.random.empty(), "there ",
            choice.random.empty() ? "is neither a model nor --random" : "are both a model and --random",
            "; one of them is the model to use");
    if (choice.random.empty()) return open_model(choice.path);
    const double began = statistics::steady_seconds();
    model_files files = random_model(config_of_known_model(choice.random), 1, {}, choice.random_type);
    files.name = choice.random + ", random weights" + (choice.random_type == "bf16" ? "" : " in " + choice.random_type);
    char text[64];
    std::snprintf(text, sizeof text, "random weights made in %.1f s\n", statistics::steady_seconds() - began);
    if (is_terminal(err)) err << text;
    return files;
}

weight_format weight_format_named(const std::string& name) {
    constexpr std::array formats{weight_format::f32,  weight_format::f16,  weight_format::bf16, weight_format::e4m3,
                                 weight_format::int8, weight_format::int4, weight_format::mixed};
    for (const weight_format format : formats) {
        if (name == name_of(format)) return format;
    }
    return weight_format::as_in_file;
}

double mixture_size(const std::string& weights, std::optional<double> budget) {
    require(!budget || weights == name_of(weight_format::mixed), "--weights-budget: ", budget.value_or(0),
            " bits per weight; it is the size of --weights mixed, and --weights is ", weights);
    return budget.value_or(usual_bits_per_weight);
}

kv_cache_format kv_cache_format_named(const std::string& name) {
    using enum kv_cache_format;
    for (const kv_cache_format format : {f32, f16, bf16, e4m3}) {
        if (name == name_of(format)) return format;
    }
    return kv_cache_format::by_device;
}

background_engine_loader::background_engine_loader(model_files files, const engine_options& options)
    : engine_(std::async(std::launch::async, [this, options, files = std::move(files)]() mutable {
          return std::make_unique<text_engine>(std::move(files), options, [this](std::int64_t done, std::int64_t all) {
              done_ = done;
              all_ = all;
          });
      })) {}

std::unique_ptr<text_engine> background_engine_loader::wait(std::ostream& err) {
    progress_bar bar(err, is_terminal(err), "loading", "MB", 1000000);
    while (engine_.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) bar.update(done_, all_);
    return engine_.get();
}

// Steps of a prompt take about this long, so that Ctrl-C is noticed soon.
constexpr double seconds_of_step = 0.4;
constexpr int fewest_tokens_of_step = 16, first_tokens_of_step = 64;

void print_text(std::ostream& out, const std::string& text) {
    out << (is_terminal(out) ? harmless(text) : text) << std::flush;
}

written_text write_text(text_engine& model, std::vector<int> prompt, const text_options& options,
                        const command_streams& streams, const std::function<void(const std::string&)>& take) {
    const interrupt_guard stop;
    const double began = statistics::steady_seconds();
    const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
    const std::int64_t computed_before = model.summary().computed_tokens;
    std::int64_t budget = first_tokens_of_step;
    progress_bar bar(streams.err, is_terminal(streams.err), "prompt", "tokens");
    const sequence_id id = model.submit(std::move(prompt), options);
    written_text written;
    while (!model.idle()) {
        if (stop.wanted()) {
            model.cancel(id);
            written.reason = finish_reason::cancelled;
            break;
        }
        model.limit_batched_tokens(static_cast<int>(budget));
        const double step_began = statistics::steady_seconds();
        for (text_event& each : model.step()) {
            bar.clear();
            if (take) {
                take(each.text);
            } else {
                print_text(streams.out, each.text);
            }
            check_written(streams.out, "the output");
            written.text += each.text;
            written.tokens.push_back(std::move(each.sampled));
            written.reason = each.reason;
            if (written.tokens.size() == 1) written.ttft_seconds = statistics::steady_seconds() - began;
        }
        if (!written.tokens.empty()) continue;
        const double seconds = std::max(statistics::steady_seconds() - step_began, 1e-6);
        const double wanted = static_cast<double>(budget) * std::min(seconds_of_step / seconds, 4.0);
        budget = std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), fewest_tokens_of_step, 1 << 20);
        bar.update(model.summary().computed_tokens - computed_before, prompt_tokens);
    }
    written.seconds = statistics::steady_seconds() - began;
    return written;
}

void write_statistics(const model_args& choice, const text_engine& model, const command_streams& streams) {
    if (choice.statistics_are_json) {
        streams.err << model.summary_with_energy().json() << "\n";
    } else if (choice.shows_statistics) {
        streams.err << model.summary_with_energy().text();
    }
}

std::optional<chat_format> format_of(const template_args& choice, const tokenizer& tokens, const chat_source& own) {
    return chat_format::named(choice.name, tokens, own);
}

nlohmann::ordered_json variables_of(const template_args& choice) {
    auto all = nlohmann::ordered_json::object();
    for (const std::string& each : choice.variables) {
        const std::size_t sign = each.find('=');
        require(sign != std::string::npos && sign > 0, "--set: ", printable(each), "; name=value is needed");
        auto value = nlohmann::ordered_json::parse(each.substr(sign + 1), nullptr, false);
        if (value.is_discarded()) value = each.substr(sign + 1);
        all[each.substr(0, sign)] = std::move(value);
    }
    return all;
}

std::string read_text_file(const std::string& path, const char* option) {
    require(!std::filesystem::is_directory(path), option, ": ", path, " is a directory");
    std::ifstream file(path, std::ios::binary);
    require(file.good(), option, ": ", path, " cannot be read");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    require(!file.bad(), option, ": ", path, " cannot be read");
    return text;
}

void check_written(std::ostream& out, const std::string& name) {
    out.flush();
    require(out.good(), name, " cannot be written (is the disk full, or the file closed?)");
}

std::string figures_of(const written_text& written) {
    // The time to the first token includes the prefill: exclude it.
    const double decoding = written.seconds - written.ttft_seconds;
    const auto tokens = static_cast<double>(written.tokens.size());
    char text[128];
    std::snprintf(text, sizeof text, "%zu tokens, %.1f a second, the first after %.0f ms", written.tokens.size(),
                  decoding > 0 && tokens > 1 ? (tokens - 1) / decoding : 0.0, written.ttft_seconds * 1e3);
    return text;
}

shared_constraint constraint_of(const generation_args& choice, const text_engine& model) {
    if (!choice.json_schema.empty())
        return constrain_to_json_schema(read_text_file(choice.json_schema, "--json-schema"), model.token_trie());
    return choice.regex.empty() ? nullptr : constrain_to_regex(choice.regex, model.token_trie());
}

std::uint64_t seed_of(const generation_args& choice) {
    if (choice.seed) return *choice.seed;
    std::random_device chance;
    return std::uint64_t{chance()} << 32 | chance();
}

}  // namespace imbrex::engine
