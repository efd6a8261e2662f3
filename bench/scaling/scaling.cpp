// Simulated scaling of context-parallel attention: efficiency on 8 to 512 GPUs with a fixed sequence (strong scaling)
// and with fixed tokens per GPU (weak scaling), and the time of virtual ranks on one GPU. Nothing is measured: each
// table starts with "simulated" and its assumptions. scaling.py draws the --json output.
#include "predictions.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

using namespace imbrex;
using json = nlohmann::ordered_json;

namespace {

constexpr const char* examples =
    R"(Examples:
  bench_scaling --json scaling.json
  bench_scaling --tokens 131072,1048576 --gpus 8,64 --launch-time 2
  bench_scaling --virtual-ranks 1,2,4,8 --tokens 131072,1048576 --heads 8 --kv-heads 8 --rate 670

Rates count unmasked scores under a causal mask. Without --virtual-ranks there are also tables with kv_heads = heads.
docs/results/scaling.md explains the tables.)";

// In the units of the command line: TFLOP/s, GB/s and microseconds.
struct choice {
    std::vector<int> tokens = {1 << 20};
    int tokens_per_gpu = 1 << 14;
    std::vector<int> gpus = {8, 16, 32, 64, 128, 256, 512};
    std::vector<int> virtual_ranks = {};
    int heads = 32;
    int kv_heads = 8;
    int head_dim = 128;
    double rate = 600;
    double launch_time = 5;
    int gpus_per_node = 8;
    double nvlink_bandwidth = 360;  // 80% of 450
    double nvlink_latency = 10;
    double infiniband_bandwidth = 45;  // 90% of 50
    double infiniband_latency = 20;
    double memory_bandwidth = 4160;  // a copy by the driver on an H200, read plus written
    double copy_latency = 5;
    std::string json_file = {};

    device_speed device() const { return {.attention_rate = rate * 1e12, .launch_time = launch_time * 1e-6}; }
    cluster_machine cluster() const {
        return {.device = device(),
                .ranks_per_node = gpus_per_node,
                .within_node = {.bandwidth = nvlink_bandwidth * 1e9, .latency = nvlink_latency * 1e-6},
                .between_nodes = {.bandwidth = infiniband_bandwidth * 1e9, .latency = infiniband_latency * 1e-6}};
    }
    shared_device one_device() const {
        return {.device = device(), .memory_bandwidth = memory_bandwidth * 1e9, .copy_latency = copy_latency * 1e-6};
    }
    attention_sizes sizes(int kv_head_count) const {
        return {.heads = heads, .kv_heads = kv_head_count, .head_dim = head_dim, .head_dim_v = head_dim};
    }
    std::string attention_words(int kv_head_count) const {
        return str_cat(heads, " heads, ", kv_head_count, " kv_heads, head_dim ", head_dim,
                       ", 16 bits, partial results in fp32, causal; ", rate, " TFLOP/s, a launch ", launch_time, " us");
    }
    std::string cluster_words() const {
        return str_cat("nodes of ", gpus_per_node, " GPUs; NVLink ", nvlink_bandwidth, " GB/s and ", nvlink_latency,
                       " us, InfiniBand ", infiniband_bandwidth, " GB/s and ", infiniband_latency, " us");
    }
    std::string copy_words() const {
        return str_cat("copies at ", memory_bandwidth, " GB/s, read and written, and ", copy_latency, " us");
    }
};

void add_options(CLI::App& app, choice& chosen) {
    const auto add = [&](const char* name, auto& value, const char* meaning, const char* group) {
        return app.add_option(name, value, meaning)->capture_default_str()->group(group);
    };
    constexpr const char *attention = "The attention", *machine = "The machine", *output = "The output";
    add("--tokens", chosen.tokens, "tokens of the sequence, for strong scaling and virtual ranks", attention)
        ->delimiter(',');
    add("--tokens-per-gpu", chosen.tokens_per_gpu, "tokens per GPU, for weak scaling", attention);
    add("--heads", chosen.heads, "query heads", attention);
    add("--kv-heads", chosen.kv_heads, "KV heads", attention);
    add("--head-dim", chosen.head_dim, "columns of a head", attention);
    add("--gpus", chosen.gpus, "numbers of GPUs; one row each", machine)->delimiter(',');
    add("--virtual-ranks", chosen.virtual_ranks, "ranks that share one GPU, instead of many GPUs", machine)
        ->delimiter(',');
    add("--rate", chosen.rate, "attention throughput in TFLOP/s", machine);
    add("--launch-time", chosen.launch_time, "launch time of a kernel in us", machine);
    add("--gpus-per-node", chosen.gpus_per_node, "GPUs per node, connected by NVLink", machine);
    add("--nvlink-bandwidth", chosen.nvlink_bandwidth, "NVLink bandwidth in GB/s, one direction", machine);
    add("--nvlink-latency", chosen.nvlink_latency, "NVLink latency in us", machine);
    add("--infiniband-bandwidth", chosen.infiniband_bandwidth, "InfiniBand bandwidth per GPU in GB/s, one direction",
        machine);
    add("--infiniband-latency", chosen.infiniband_latency, "InfiniBand latency in us", machine);
    add("--memory-bandwidth", chosen.memory_bandwidth, "memory bandwidth in GB/s, for copies of virtual ranks",
        machine);
    add("--copy-latency", chosen.copy_latency, "copy latency in us", machine);
    app.add_option("--json", chosen.json_file, "output file for the tables")->type_name("FILE")->group(output);
    app.footer(examples);
}

std::string milliseconds(double seconds) {
    char text[32];
    const double number = seconds * 1e3;
    std::snprintf(text, sizeof text, "%.*f ms", number >= 100 ? 0 : number >= 10 ? 1 : 2, number);
    return text;
}
std::string percent(double part) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f%%", 100 * part);
    return text;
}

void print_heading(const std::string& title, const std::string& parameters) {
    std::printf("\n### %s\n\n%s.\n\n", title.c_str(), parameters.c_str());
}
void print_row(const std::vector<std::string>& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) line += " " + cell + " |";
    std::printf("%s\n", line.c_str());
}
void print_head(const std::vector<std::string>& names) {
    print_row(names);
    print_row(std::vector<std::string>(names.size(), "---"));
}

json json_of(const bench::prediction& one) {
    return {{"seconds", one.seconds}, {"efficiency", one.efficiency}, {"hidden", one.hidden}, {"exposed", one.exposed},
            {"idle", one.idle},       {"q_chunks", one.q_chunks}};
}

struct predicted_row {
    int gpus;
    int tokens;
    std::vector<bench::prediction> all;
};

// Efficiency and time; a second table has the breakdown.
void print_tables(const std::string& title, const std::string& parameters, const std::vector<predicted_row>& rows) {
    print_heading(title, parameters);
    print_head({"GPUs", "tokens", "ring", "zigzag", "striped", "best mesh", "Ulysses"});
    for (const predicted_row& row : rows) {
        std::vector<std::string> cells = {std::to_string(row.gpus), std::to_string(row.tokens)};
        for (const bench::prediction& one : row.all) {
            cells.push_back(percent(one.efficiency) + ", " + milliseconds(one.seconds));
            if (one.schedule == "best mesh") cells.back() += ", a = " + std::to_string(one.q_chunks);
        }
        cells.resize(7);
        print_row(cells);
    }
    print_heading(title + ": hidden transfers, exposed transfers and idle time, in percent of the time", parameters);
    print_head({"GPUs", "ring", "zigzag", "striped", "best mesh", "Ulysses"});
    for (const predicted_row& row : rows) {
        std::vector<std::string> cells = {std::to_string(row.gpus)};
        for (const bench::prediction& one : row.all) {
            cells.push_back(percent(one.hidden) + ", " + percent(one.exposed) + ", " + percent(one.idle));
        }
        cells.resize(6);
        print_row(cells);
    }
}

json scaling_table(const choice& chosen, const std::string& title, int kv_heads, bool strong, int tokens) {
    const std::string parameters = chosen.attention_words(kv_heads) + "; " + chosen.cluster_words();
    json made{{"title", title}, {"parameters", parameters}, {"rows", json::array()}};
    std::vector<predicted_row> rows;
    for (const int gpus : chosen.gpus) {
        const std::int64_t all = strong ? tokens : std::int64_t{tokens} * gpus;
        require(all <= max_tokens, "tokens: ", all, "; ", "at most ", max_tokens, " are allowed");
        const attention_sizes sizes = chosen.sizes(kv_heads);
        const predicted_row row{gpus, static_cast<int>(all),
                                bench::predictions_of(static_cast<int>(all), gpus, sizes, chosen.cluster())};
        json schedules = json::object();
        for (const bench::prediction& one : row.all) schedules[one.schedule] = json_of(one);
        made["rows"].push_back({{"gpus", gpus}, {"tokens", all}, {"schedules", schedules}});
        rows.push_back(row);
    }
    print_tables(title, parameters, rows);
    return made;
}

json virtual_table(const choice& chosen, int tokens) {
    const std::string title = str_cat("simulated: virtual ranks on one GPU, zigzag, a sequence of ", tokens, " tokens");
    const std::string parameters = chosen.attention_words(chosen.kv_heads) + "; " + chosen.copy_words();
    json made{{"title", title}, {"parameters", parameters}, {"rows", json::array()}};
    print_heading(title, parameters);
    print_head({"ranks", "time", "to one kernel", "blocks", "exposed copies", "all copies"});
    for (const int ranks : chosen.virtual_ranks) {
        const ring_schedule schedule{.tokens = tokens,
                                     .ranks = ranks,
                                     .placement = token_placement::zigzag,
                                     .sizes = chosen.sizes(chosen.kv_heads)};
        const timeline line = simulate(schedule, chosen.one_device());
        double copies = 0;
        for (const transfer_times& one : line.transfers) copies += one.end - one.begin;
        const double exposed = std::max(line.time() - line.compute_time(), 0.0);  // rounding may make it negative
        const double ratio = line.single_device_time > 0 ? line.time() / line.single_device_time : 1;
        char ratio_text[32];
        std::snprintf(ratio_text, sizeof ratio_text, "%.4fx", ratio);
        print_row({std::to_string(ranks), milliseconds(line.time()), ratio_text, milliseconds(line.compute_time()),
                   milliseconds(exposed), milliseconds(copies)});
        made["rows"].push_back({{"ranks", ranks},
                                {"seconds", line.time()},
                                {"alone", line.single_device_time},
                                {"blocks", line.compute_time()},
                                {"exposed", exposed},
                                {"copies", copies}});
    }
    return made;
}

json all_tables(const choice& chosen) {
    json made = json::array();
    if (!chosen.virtual_ranks.empty()) {
        for (const int tokens : chosen.tokens) made.push_back(virtual_table(chosen, tokens));
        return made;
    }
    std::vector<int> all_kv_heads = {chosen.heads};
    if (chosen.kv_heads != chosen.heads) all_kv_heads.push_back(chosen.kv_heads);
    const auto heads_words = [&](int kv_heads) { return str_cat(chosen.heads, ":", kv_heads, " heads"); };
    for (const int kv_heads : all_kv_heads) {
        for (const int tokens : chosen.tokens) {
            const std::string title =
                str_cat("simulated: strong scaling of ", tokens, " tokens, ", heads_words(kv_heads));
            made.push_back(scaling_table(chosen, title, kv_heads, true, tokens));
        }
    }
    for (const int kv_heads : all_kv_heads) {
        const std::string title =
            str_cat("simulated: weak scaling, ", chosen.tokens_per_gpu, " tokens a GPU, ", heads_words(kv_heads));
        made.push_back(scaling_table(chosen, title, kv_heads, false, chosen.tokens_per_gpu));
    }
    return made;
}

}  // namespace

int main(int count, char** words) {
    choice chosen;
    CLI::App app("Simulated scaling of context-parallel attention.", "bench_scaling");
    add_options(app, chosen);
    CLI11_PARSE(app, count, words);
    try {
        const json tables = all_tables(chosen);
        if (!chosen.json_file.empty()) {
            std::ofstream file(chosen.json_file);
            file << tables.dump(1) << '\n';
            file.close();
            require(!file.fail(), "--json: ", chosen.json_file, " cannot be written");
        }
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "bench_scaling: %s\n", problem.what());
        return 1;
    }
    return 0;
}
