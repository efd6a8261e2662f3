// Fleet simulation: how many replicas a load needs, with the real scheduler and block manager and measured step costs.
// Three commands: fit (step costs from measured steps), trace (a generated load as a file), simulate. Simulated figures
// are said to be simulated. fleet.py draws the --json output; docs/results/fleet.md explains it.
#include "serving/fleet_costs.hpp"
#include "serving/fleet_load.hpp"
#include "serving/fleet_simulation.hpp"

#include <imbrex/core/error.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace imbrex::engine;
using imbrex::require;
using imbrex::str_cat;
using ordered = nlohmann::ordered_json;

namespace {

constexpr const char* examples =
    R"(Examples:
  imbrex bench --random llama-3.1-8b --requests 1,8,64 --step-costs steps.jsonl
  bench_fleet fit steps.jsonl --costs costs.json
  bench_fleet simulate --costs costs.json --rate 20 --replicas 1,2,4,8 --json fleet.json
  bench_fleet simulate --costs costs.json --rate 10,20,40 --find 0.99 --ttft-limit 0.5
  bench_fleet trace --rate 4 --seconds 30 --systems 8 --output-file trace.jsonl
  bench_fleet simulate --costs costs.json --trace trace.jsonl --replicas 1

Distributions: fixed:value, uniform:least,most, lognormal:median,sigma, exponential:mean.)";

struct fit_choice {
    std::vector<std::string> files{};
    std::vector<std::string> only{}, without{};
    std::string costs{};
};

struct load_choice {
    bench::load_options load{};
    std::vector<double> rates{1};
    std::string input, output, turns, think, system_tokens;
};

struct simulate_choice {
    load_choice load{};
    std::string costs{}, trace{}, json_file{}, measured{};
    std::vector<int> replicas{1};
    std::vector<std::string> policies{};
    bench::bounded_load bounded{};
    latency_limits limits{};
    std::optional<double> find{};
    int most = 1000;
    std::optional<int> blocks{}, context{}, batch_tokens{}, sequences{};
};

std::string content_of(const std::string& path, const char* option) {
    std::ifstream file(path, std::ios::binary);
    require(file.is_open(), option, ": ", path, " cannot be read");
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const char* option, const auto& write) {
    std::ofstream file(path);
    write(file);
    file.close();
    require(!file.fail(), option, ": ", path, " cannot be written");
}

// --- fit -------------------------------------------------------------------------------------------------------------

bool is_wanted(const fit_choice& chosen, const std::string& source) {
    const auto has = [&](const std::vector<std::string>& all) { return std::ranges::find(all, source) != all.end(); };
    return source != "warm-up" && !has(chosen.without) && (chosen.only.empty() || has(chosen.only));
}

int run_fit(const fit_choice& chosen) {
    bench::cost_file made;
    std::vector<bench::measured_step> fitted, others;
    for (const std::string& path : chosen.files) {
        std::ifstream file(path);
        require(file.is_open(), "fit: ", path, " cannot be read");
        bench::measured_steps read = bench::read_steps(file, path);
        made.model = read.model;
        made.world = read.world;
        made.replica = read.replica;
        for (bench::measured_step& one : read.steps) {
            if (one.source != "warm-up") (is_wanted(chosen, one.source) ? fitted : others).push_back(std::move(one));
        }
    }
    made.costs = bench::fitted_costs(fitted);
    ordered written = bench::json_of(made);
    std::printf("%s, %s world\n", made.model.c_str(), made.world.c_str());
    const auto report = [&](const char* name, const char* key, std::span<const bench::measured_step> steps) {
        if (steps.empty()) return;
        const bench::fit_error error = bench::error_of(made.costs, steps);
        std::printf("%s: %d steps, mean error of a step %.1f%%, 90%% of the steps within %.1f%%, all steps %+.1f%%\n",
                    name, error.steps, 100 * error.mean, 100 * error.p90, 100 * error.total);
        written[key] = {{"steps", error.steps}, {"mean", error.mean}, {"p90", error.p90}, {"total", error.total}};
    };
    report("fitted", "error", fitted);
    report("not fitted", "error_of_others", others);
    if (chosen.costs.empty()) {
        std::printf("%s\n", written.dump(1).c_str());
    } else {
        write_file(chosen.costs, "--costs", [&](std::ostream& out) { out << written.dump(1) << '\n'; });
    }
    return 0;
}

// --- trace, simulate -------------------------------------------------------------------------------------------------

request_trace load_at(load_choice chosen, double rate) {
    bench::load_options& load = chosen.load;
    load.rate = rate;
    const auto set = [](bench::distribution& what, const std::string& text) {
        if (!text.empty()) what = bench::distribution(text);
    };
    set(load.input, chosen.input);
    set(load.output, chosen.output);
    set(load.turns, chosen.turns);
    set(load.think, chosen.think);
    set(load.system_tokens, chosen.system_tokens);
    return bench::generate_load(load);
}

int run_trace(const load_choice& chosen, const std::string& path) {
    require(chosen.rates.size() == 1, "--rate: ", chosen.rates.size(), " rates; a trace has one");
    const request_trace trace = load_at(chosen, chosen.rates[0]);
    write_file(path, "--output-file", [&](std::ostream& out) { write_trace(out, trace); });
    std::printf("%s: %zu conversations, %d requests, %lld output tokens, at most %d tokens in a conversation\n",
                path.c_str(), trace.size(), requests_of(trace), static_cast<long long>(outputs_of(trace)),
                longest_of(trace));
    return 0;
}

bench::cost_file costs_of(const simulate_choice& chosen) {
    bench::cost_file made = bench::read_costs(content_of(chosen.costs, "--costs"), chosen.costs);
    if (chosen.blocks) made.replica.groups.at(0).blocks = *chosen.blocks;
    if (chosen.context) made.replica.scheduler.context = *chosen.context;
    if (chosen.batch_tokens) made.replica.scheduler.max_num_batched_tokens = *chosen.batch_tokens;
    if (chosen.sequences) made.replica.scheduler.max_num_seqs = *chosen.sequences;
    return made;
}

void print_head() {
    std::printf("%-13s %9s %9s %9s %9s %9s %9s %9s %8s %7s %8s %10s\n", "policy", "conv/s", "replicas", "TTFT p50",
                "TTFT p99", "ITL p50", "ITL p99", "goodput", "hits", "util", "tok/s", "preempted");
}

void print_row(const std::string& policy, double rate, int replicas, const bench::fleet_result& it) {
    std::printf("%-13s %9.3g %9d %6.0f ms %6.0f ms %6.1f ms %6.1f ms %8.1f%% %7.1f%% %6.1f%% %8.0f %10lld\n",
                policy.c_str(), rate, replicas, it.latencies.ttft.p50 * 1e3, it.latencies.ttft.p99 * 1e3,
                it.latencies.itl.p50 * 1e3, it.latencies.itl.p99 * 1e3, 100 * it.latencies.goodput, 100 * it.hit_rate,
                100 * it.utilisation, it.latencies.tokens_per_second, static_cast<long long>(it.preemptions));
    std::fflush(stdout);
}

ordered json_of(const std::string& policy, double rate, int replicas, const bench::fleet_result& it) {
    ordered made{{"policy", policy}, {"rate", rate}, {"replicas", replicas}};
    made.update(ordered::parse(it.latencies.json()));
    made["hit_rate"] = it.hit_rate;
    made["utilisation"] = it.utilisation;
    made["steps"] = it.steps;
    made["preemptions"] = it.preemptions;
    return made;
}

// Simulated figures beside those of `imbrex bench --trace --latencies`.
void compare(const latency_summary& simulated, const ordered& measured) {
    std::printf("\n%-12s %12s %12s %8s\n", "", "measured", "simulated", "error");
    const auto row = [](const char* name, double real, double made) {
        std::printf("%-12s %12.4g %12.4g %+7.1f%%\n", name, real, made, made == real ? 0 : 100 * (made / real - 1));
    };
    const auto rows = [&](const char* key, const latency_percentiles& all) {
        const auto& real = measured.at(key);
        row(str_cat(key, " mean").c_str(), real.at("mean"), all.mean);
        row(str_cat(key, " p50").c_str(), real.at("p50"), all.p50);
        row(str_cat(key, " p90").c_str(), real.at("p90"), all.p90);
        row(str_cat(key, " p99").c_str(), real.at("p99"), all.p99);
    };
    rows("ttft", simulated.ttft);
    rows("itl", simulated.itl);
    row("tok/s", measured.at("tokens_per_second"), simulated.tokens_per_second);
    row("goodput", measured.at("goodput"), simulated.goodput);
}

// One row of the output: a policy and a number of replicas, or 0: the smallest number that is enough.
struct simulated_row {
    std::shared_ptr<const request_trace> trace{};
    double rate = 0;
    bench::fleet_options fleet{};
    bench::fleet_result result{};
};

std::vector<simulated_row> rows_at(const simulate_choice& chosen, const bench::cost_file& costs,
                                   const request_trace& trace, double rate) {
    const auto shared = std::make_shared<const request_trace>(trace);
    std::vector<simulated_row> rows;
    for (const std::string& policy : chosen.policies.empty() ? bench::routing_policies() : chosen.policies) {
        for (const int replicas : chosen.find ? std::vector{0} : chosen.replicas) {
            rows.push_back({.trace = shared,
                            .rate = rate,
                            .fleet = {.replicas = replicas,
                                      .policy = policy,
                                      .bounded = chosen.bounded,
                                      .replica = costs.replica,
                                      .costs = costs.costs}});
        }
    }
    return rows;
}

void simulate_row(simulated_row& row, const simulate_choice& chosen) {
    if (!chosen.find) {
        row.result = bench::simulate(row.fleet, *row.trace, chosen.limits);
        return;
    }
    const auto found = bench::smallest_fleet(row.fleet, *row.trace, chosen.limits, *chosen.find, chosen.most);
    row.fleet.replicas = found.replicas;
    row.result = found.result;
}

// On all cores; each simulation takes one. Throws what one of them throws.
void simulate_rows(std::vector<simulated_row>& rows, const simulate_choice& chosen) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < rows.size(); i = next++) simulate_row(rows[i], chosen);
    };
    std::vector<std::future<void>> threads;
    const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
    for (std::size_t i = 0; i < std::min(cores, rows.size()); ++i)
        threads.push_back(std::async(std::launch::async, work));
    for (std::future<void>& each : threads) each.get();
}

ordered report(const simulated_row& row, const simulate_choice& chosen) {
    const auto& [trace, rate, fleet, result] = row;
    if (fleet.replicas == 0) {
        std::printf("%-13s %9.3g: not even %d are enough\n", fleet.policy.c_str(), rate, chosen.most);
        return {};
    }
    print_row(fleet.policy, rate, fleet.replicas, result);
    ordered made = json_of(fleet.policy, rate, fleet.replicas, result);
    if (!chosen.measured.empty()) {
        made["measured"] = ordered::parse(content_of(chosen.measured, "--measured"));
        compare(result.latencies, made["measured"]);
    }
    return made;
}

int run_simulate(simulate_choice chosen) {
    const auto began = std::chrono::steady_clock::now();
    const bench::cost_file costs = costs_of(chosen);
    if (chosen.load.load.max_tokens == 0) chosen.load.load.max_tokens = costs.replica.scheduler.context;
    std::printf("simulated, with the step costs of: %s, %s world\n", costs.model.c_str(), costs.world.c_str());
    std::vector<simulated_row> rows;
    const auto add = [&](const request_trace& trace, double rate) {
        for (simulated_row& row : rows_at(chosen, costs, trace, rate)) rows.push_back(std::move(row));
    };
    if (chosen.trace.empty()) {
        for (const double rate : chosen.load.rates) add(load_at(chosen.load, rate), rate);
    } else {
        const request_trace trace = read_trace_file(chosen.trace);
        add(trace, static_cast<double>(trace.size()) / std::max(trace.back().arrival, 1e-9));
    }
    simulate_rows(rows, chosen);
    print_head();
    ordered reported = ordered::array();
    for (const simulated_row& row : rows) {
        if (ordered made = report(row, chosen); !made.empty()) reported.push_back(std::move(made));
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("%.1f s of computing\n", took.count());
    if (chosen.json_file.empty()) return 0;
    ordered written{{"simulated", true},
                    {"model", costs.model},
                    {"world", costs.world},
                    {"ttft_limit", chosen.limits.ttft},
                    {"itl_limit", chosen.limits.itl}};
    if (chosen.find) written["find"] = *chosen.find;
    written["rows"] = std::move(reported);
    write_file(chosen.json_file, "--json", [&](std::ostream& out) { out << written.dump(1) << '\n'; });
    return 0;
}

// --- the command line ------------------------------------------------------------------------------------------------

void add_load_options(CLI::App& app, load_choice& chosen) {
    constexpr const char* group = "The load";
    const auto add = [&](const char* name, auto& value, const std::string& meaning) {
        return app.add_option(name, value, meaning)->group(group);
    };
    const auto add_distribution = [&](const char* name, std::string& value, const bench::distribution& usual,
                                      const char* meaning) {
        add(name, value, str_cat(meaning, " (", usual.text(), ")"))->type_name("DISTRIBUTION");
    };
    bench::load_options& load = chosen.load;
    add("--rate", chosen.rates, "conversations a second")->delimiter(',')->capture_default_str();
    add("--seconds", load.seconds, "time in which they arrive")->capture_default_str();
    add("--burstiness", load.burstiness, "variance of the time between arrivals / mean squared; 1: Poisson")
        ->capture_default_str();
    add_distribution("--input", chosen.input, load.input, "tokens of an input");
    add_distribution("--output", chosen.output, load.output, "tokens of an answer");
    add_distribution("--turns", chosen.turns, load.turns, "turns of a conversation");
    add_distribution("--think", chosen.think, load.think, "seconds from an answer to the next turn");
    add("--systems", load.systems, "different system prompts; 0: none")->capture_default_str();
    add_distribution("--system-tokens", chosen.system_tokens, load.system_tokens, "tokens of a system prompt");
    add("--conversation-tokens", load.max_tokens, "maximum tokens of a conversation; 0: the context of simulate")
        ->capture_default_str();
    add("--seed", load.seed, "the same seed gives the same load")->capture_default_str();
}

void add_fit(CLI::App& app, fit_choice& chosen) {
    app.add_option("steps", chosen.files, "files of imbrex bench --step-costs")->required();
    app.add_option("--only", chosen.only, "rows and traces to fit, such as \"8 requests\" (all)")->delimiter(',');
    app.add_option("--without", chosen.without, "rows and traces not to fit")->delimiter(',');
    app.add_option("--costs", chosen.costs, "output file (standard output)")->type_name("FILE");
}

void add_simulate(CLI::App& app, simulate_choice& chosen) {
    add_load_options(app, chosen.load);
    app.add_option("--trace", chosen.trace, "file of conversations, instead of a generated load")
        ->type_name("FILE")
        ->group("The load");
    const auto add = [&](const char* name, auto& value, const char* meaning) {
        return app.add_option(name, value, meaning)->group("The fleet");
    };
    add("--costs", chosen.costs, "step costs, from bench_fleet fit")->required()->type_name("FILE");
    add("--replicas", chosen.replicas, "numbers of replicas; one row each")->delimiter(',')->capture_default_str();
    add("--find", chosen.find, "the smallest number of replicas with this goodput, instead of --replicas");
    add("--most", chosen.most, "maximum replicas of --find")->capture_default_str();
    add("--policy", chosen.policies, "round-robin, least-loaded, prefix-hash, session-hash (all)")->delimiter(',');
    add("--bound", chosen.bounded.bound, "hashing: maximum load of a replica, in means")->capture_default_str();
    add("--least-bound", chosen.bounded.least_bound, "hashing: tokens that a replica may always have")
        ->capture_default_str();
    add("--ttft-limit", chosen.limits.ttft, "goodput: time to first token, in seconds")->capture_default_str();
    add("--itl-limit", chosen.limits.itl, "goodput: mean inter-token latency of a request, in seconds")
        ->capture_default_str();
    add("--blocks", chosen.blocks, "blocks of the KV cache (as measured)");
    add("--context", chosen.context, "maximum tokens of a sequence (as measured)");
    add("--batch-tokens", chosen.batch_tokens, "token budget of a step (as measured)");
    add("--sequences", chosen.sequences, "maximum running sequences (as measured)");
    app.add_option("--measured", chosen.measured, "latencies of imbrex bench --trace, for comparison")
        ->type_name("FILE");
    app.add_option("--json", chosen.json_file, "output file for the rows")->type_name("FILE");
}

}  // namespace

int main(int count, char** words) {
    fit_choice fit;
    load_choice load;
    simulate_choice simulate;
    std::string trace_file;
    CLI::App app("Simulated fleets of the serving engine.", "bench_fleet");
    app.require_subcommand(1);
    app.footer(examples);
    CLI::App* fit_app = app.add_subcommand("fit", "Step costs from measured steps");
    add_fit(*fit_app, fit);
    CLI::App* trace_app = app.add_subcommand("trace", "Write a generated load as a trace");
    add_load_options(*trace_app, load);
    trace_app->add_option("--output-file", trace_file, "the trace")->required()->type_name("FILE");
    add_simulate(*app.add_subcommand("simulate", "Latencies, goodput and utilisation of a fleet"), simulate);
    CLI11_PARSE(app, count, words);
    try {
        if (app.got_subcommand(fit_app)) return run_fit(fit);
        if (app.got_subcommand(trace_app)) return run_trace(load, trace_file);
        return run_simulate(simulate);
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "bench_fleet: %s\n", problem.what());
        return 1;
    }
}
