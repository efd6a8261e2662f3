// bench: throughput of a model on this machine, with requests of random tokens. All requests of a row arrive at once. A
// step that computes more tokens than it returns, rejected drafts aside, counts as prefill, any other as decode. Both are
// timed separately.
// Requests of a trace arrive by the wall clock; their latencies are measured.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <imbrex/core/error.hpp>
#include <ostream>
#include <random>

#include "engine/cli/bench_trace.hpp"
#include "engine/cli/command_model.hpp"
#include "engine/loading/random_model.hpp"

namespace imbrex::engine {

namespace {

struct row {
    double prompt_tokens = 0, prompt_seconds = 0;  // of prefill steps
    double decoded_tokens = 0, decode_seconds = 0;
    double generated = 0, seconds = 0;  // of all steps
    std::vector<double> first_tokens{};
};

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

row run_row(text_engine& model, int requests, int input, int output, std::mt19937& chance, step_cost_file& costs) {
    const double began = statistics::steady_seconds();
    std::uniform_int_distribution<int> any_token(0, model.config().vocab_size - 1);
    const text_options options{
        .max_tokens = output, .sampling = {.temperature = 0, .bias = {}, .stop = {}}, .ends = false};
    for (int i = 0; i < requests; ++i) {
        std::vector<int> prompt(static_cast<std::size_t>(input));
        for (int& id : prompt) id = any_token(chance);
        model.submit(std::move(prompt), options);
    }
    row result;
    std::vector<sequence_id> seen;
    for (double step_began = statistics::steady_seconds(), now = 0; !model.idle(); step_began = now) {
        const statistics_summary before = model.summary();
        const std::vector<text_event> events = model.step();
        now = statistics::steady_seconds();
        costs.add(model.last_step(), now - step_began);
        const statistics_summary after = model.summary();
        const auto rejected =
            after.drafted_tokens - before.drafted_tokens - after.accepted_tokens + before.accepted_tokens;
        const auto computed = static_cast<double>(after.computed_tokens - before.computed_tokens - rejected);
        const auto given = static_cast<double>(events.size());
        result.generated += given;
        if (computed > given) {
            result.prompt_tokens += computed;
            result.prompt_seconds += now - step_began;
        } else {
            result.decoded_tokens += given;
            result.decode_seconds += now - step_began;
        }
        if (seen.size() == static_cast<std::size_t>(requests)) continue;
        for (const text_event& each : events) {
            if (std::ranges::find(seen, each.id) != seen.end()) continue;
            seen.push_back(each.id);
            result.first_tokens.push_back(now - began);
        }
    }
    result.seconds = statistics::steady_seconds() - began;
    std::ranges::sort(result.first_tokens);
    return result;
}

// A draft model with the vocabulary of the model: a draft token must be one of its tokens.
speculation_options random_draft_of(const bench_command& command, const model_files& files) {
    require(!command.model.random.empty() && command.model.draft_model.empty(),
            "--random-draft: ", command.random_draft,
            "; it belongs to --random, and there is no --draft-model beside it");
    const model_config config = with_vocabulary_of(config_of_known_model(command.random_draft), files.config);
    return {.source = draft_source::model,
            .draft_tokens = command.model.draft_tokens,
            .draft_model = std::make_shared<model_files>(random_model(config, 2, {}, command.model.random_type))};
}

void check(const bench_command& command) {
    require(command.input >= 1 && command.output >= 1, "bench: input ", command.input, " and output ", command.output,
            "; both must be at least 1");
    require(!command.requests.empty() || !command.traces.empty(),
            "--requests: none; each number makes a row of the table");
    for (const int requests : command.requests)
        require(requests >= 1, "--requests: ", requests, "; it must be at least 1");
    require(command.latencies.empty() || !command.traces.empty(), "--latencies: ", command.latencies,
            "; latencies are those of a trace (--trace), and there is none");
}

// Large enough for all rows and traces.
engine_options options_for(const bench_command& command, const std::vector<request_trace>& traces,
                           const model_files& files) {
    constexpr int sequences_of_a_trace = 256;
    engine_options options = options_of(command.model);
    if (!command.random_draft.empty()) options.speculation = random_draft_of(command, files);
    if (command.draft_acceptance) {
        require(options.speculation.source != draft_source::none, "--draft-acceptance: ", *command.draft_acceptance,
                "; it steers --speculate ngram or model");
        options.speculation.steered_acceptance = command.draft_acceptance;
        options.speculation.depth = speculation::depth::fixed;
    }
    const int longest = command.measures_prefix_cache ? std::max(command.input, command.shared) : command.input;
    if (options.context == 0) {
        if (!command.requests.empty()) options.context = longest + command.output;
        for (const request_trace& each : traces) options.context = std::max(options.context, longest_of(each));
    }
    if (options.max_num_seqs == 0) {
        if (!command.requests.empty())
            options.max_num_seqs = command.measures_prefix_cache ? 1 : std::ranges::max(command.requests);
        if (!traces.empty()) options.max_num_seqs = std::max(options.max_num_seqs, sequences_of_a_trace);
    }
    return options;
}

void run_rows(text_engine& model, const bench_command& command, step_cost_file& costs, std::ostream& out) {
    std::mt19937 chance(1);
    costs.begin("warm-up");
    run_row(model, 1, std::min(command.input, 8), std::min(command.output, 4), chance, costs);
    if (command.requests.empty()) return;
    out << "requests   input  output   prompt tok/s   decode tok/s      all tok/s   first token, ms   at worst, ms"
           "   seconds\n";
    for (const int requests : command.requests) {
        costs.begin(std::to_string(requests) + " requests");
        const row it = run_row(model, requests, command.input, command.output, chance, costs);
        char line[200];
        std::snprintf(line, sizeof line, "%8d %7d %7d %14.1f %14.1f %14.1f %17.1f %14.1f %9.2f\n", requests,
                      command.input, command.output, ratio(it.prompt_tokens, it.prompt_seconds),
                      ratio(it.decoded_tokens, it.decode_seconds), ratio(it.generated, it.seconds),
                      it.first_tokens[it.first_tokens.size() / 2] * 1e3, it.first_tokens.back() * 1e3, it.seconds);
        out << line << std::flush;
    }
}

void print_latencies(const char* name, const latency_percentiles& all, std::ostream& out) {
    char line[200];
    std::snprintf(line, sizeof line, "  %s, ms: mean %.1f, p50 %.1f, p90 %.1f, p99 %.1f, at worst %.1f\n", name,
                  all.mean * 1e3, all.p50 * 1e3, all.p90 * 1e3, all.p99 * 1e3, all.max * 1e3);
    out << line;
}

void run_traces(text_engine& model, const bench_command& command, const std::vector<request_trace>& traces,
                step_cost_file& costs, std::ostream& out) {
    std::ofstream file;
    if (!command.latencies.empty()) file.open(command.latencies);
    for (std::size_t i = 0; i < traces.size(); ++i) {
        costs.begin(command.traces[i]);
        const latency_summary it = run_trace(model, traces[i], static_cast<int>(i), costs).summary(command.limits);
        char line[200];
        std::snprintf(line, sizeof line, ": %d requests, %lld tokens in %.2f s, %.1f tok/s, goodput %.1f%%\n",
                      it.requests, static_cast<long long>(it.tokens), it.seconds, it.tokens_per_second,
                      100 * it.goodput);
        out << command.traces[i] << line;
        print_latencies("TTFT", it.ttft, out);
        print_latencies("ITL", it.itl, out);
        out << std::flush;
        file << it.json() << '\n';
    }
    if (!command.latencies.empty()) {
        file.close();
        require(!file.fail(), "--latencies: ", command.latencies, " cannot be written");
    }
}

}  // namespace

int run_bench(const bench_command& command, const command_streams& streams) {
    check(command);
    std::vector<request_trace> traces;
    for (const std::string& path : command.traces) traces.push_back(read_trace_file(path));
    model_files files = open_model(command.model, streams.err);
    const engine_options options = options_for(command, traces, files);
    const std::int64_t bytes = files.weights.bytes();
    const std::string name = files.name;
    background_engine_loader loading(std::move(files), options);
    const std::unique_ptr<text_engine> model = loading.wait(streams.err);

    char line[200];
    std::snprintf(line, sizeof line, ", %.1f MB, weights as %s, ", static_cast<double>(bytes) / 1e6,
                  command.model.weights == "file" ? "in the file" : command.model.weights.c_str());
    streams.out << name << line << name_of(options.where) << " world\n";
    if (command.measures_prefix_cache) {
        measure_prefix_cache(*model, command, streams.out);
        write_statistics(command.model, *model, streams);
        return exit_success;
    }
    step_cost_file costs(command.step_costs, *model, options, name);
    run_rows(*model, command, costs, streams.out);
    run_traces(*model, command, traces, costs, streams.out);
    costs.close();
    write_statistics(command.model, *model, streams);
    return exit_success;
}

}  // namespace imbrex::engine
