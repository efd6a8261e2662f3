// The commands of the program as functions of their options, independent of the command-line parser (command_line.cpp),
// so that tests can call them with any streams. They return the exit code and throw imbrex::error.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/request_latencies.hpp"
#include "engine/serving/sampling_params.hpp"

namespace imbrex::engine {

class text_engine;

struct command_streams {
    std::istream& in;
    std::ostream& out;
    std::ostream& err;  // progress, statistics, messages
};

inline constexpr int exit_success = 0, exit_error = 1, exit_usage = 2, exit_interrupted = 130;

// Options of the model.
struct model_args {
    std::string path;
    std::string random;                             // name of a known model shape, instead of a path
    std::string random_type = "bf16";               // of its weights
    std::string device = "auto";                    // auto, cpu, cuda
    std::string weights = "file";                   // file, f32, f16, bf16, e4m3, int8, int4, mixed
    std::optional<double> weights_budget;           // bits per weight of mixed weights
    std::string kv_cache = "auto";                  // auto, f32, f16, bf16, e4m3
    int threads = 0;                                // 0: all cores
    std::uint64_t memory = std::uint64_t{2} << 30;  // maximum bytes of the KV cache; 0: no limit
    int context = 0;                                // 0: the model's context
    std::optional<int> max_num_batched_tokens;      // 512 on a CPU, 4096 on a GPU
    int sequences = 1;                              // maximum running sequences; 0: all, for bench
    bool batch_invariant = false;
    bool overlaps = true;
    std::string speculate;  // off, ngram, model; empty: model if there is a draft model
    std::string draft_model;
    int draft_tokens = 7;
    // Levels of the prefix cache below the KV cache.
    std::uint64_t host_cache = 0, disk_cache = 0;  // bytes
    std::string cache_directory;
    std::string cache_policy = "lru";        // lru, lfu
    std::string cache_compression = "none";  // none, zlib, zstd
    bool cache_is_quantised = false;
    bool shows_statistics = false;
    bool statistics_are_json = false;
};

// Options of the generated text. Commands choose defaults for missing ones.
struct generation_args {
    std::optional<int> max_tokens;
    std::optional<std::uint64_t> seed;
    sampling_params sampling{.temperature = 0.8f, .bias = {}, .stop = {}};
    std::string json_schema{};  // a file: the text is JSON of this schema
    std::string regex{};        // the text matches this regular expression
};

// How conversations become prompts.
struct template_args {
    std::string name = "auto";           // auto, none, llama2, llama3, chatml or a file
    std::vector<std::string> variables;  // name=value, the value in JSON or a text
};

struct chat_command {
    model_args model;
    generation_args text;
    template_args format;
    std::string system;
    std::string reasoning = "show";  // show, hide
};
struct generate_command {
    model_args model;
    generation_args text;
    std::optional<std::string> prompt;  // else from the file, else from the input
    std::string file;
    bool repeats_prompt = false;
    bool parses_special = false;  // "<|im_end|>" in the prompt is that token
};
struct batch_command {
    model_args model;
    generation_args text;  // defaults of the lines
    template_args format;
    std::string input, output;  // file names; empty: standard streams
};
struct serve_command {
    model_args model;
    generation_args text;  // defaults of the requests
    template_args format;
    std::string host = "127.0.0.1";
    int port = 8080;   // 0: any free one
    std::string name;  // of the model; empty: of its file
    std::vector<std::string> api_keys;
    std::string cors_origin;
    std::uint64_t max_body = std::uint64_t{8} << 20;
    int max_prompt = 0;                      // tokens; 0: as many as fit
    int queue = 256;                         // sequences that wait
    std::string pooling = "mean";            // of embeddings: mean, last
    double time_limit = 0, drain_time = 30;  // seconds; time_limit 0: none
};
struct bench_command {
    model_args model;
    std::vector<int> requests{1};            // one row each
    int input = 128, output = 128;           // tokens per request
    std::optional<double> draft_acceptance;  // steered
    std::string random_draft;                // shape of a draft model with random weights
    bool measures_prefix_cache = false;
    int shared = 4000;                  // tokens of the prompt that all conversations of that measurement share
    std::vector<std::string> traces{};  // files, run one after the other by the wall clock
    latency_limits limits{};            // of requests in traces
    std::string step_costs;             // output file for the time of each step; empty: none
    std::string latencies;              // output file for the figures of the traces; empty: none
};
struct info_command {
    std::string path;
    bool lists_tensors = false;
};

struct quantize_command {
    std::string from, to;
    std::string weights = "int8";  // f32, f16, bf16, int8, int4, mixed
    std::optional<double> weights_budget;
};

struct tokenize_command {
    std::string path;
    template_args format;
    std::optional<std::string> text;  // else from the file, else from the input
    std::string file;
    std::string messages;  // a file with a conversation, instead of a text
    bool parses_special = false, adds_special = true, prints_ids = false;
};

struct perplexity_command {
    model_args model;
    std::string file;  // the text; empty: the input
    int window = 512;
};

int run_chat(const chat_command& command, const command_streams& streams);
int run_generate(const generate_command& command, const command_streams& streams);
int run_batch(const batch_command& command, const command_streams& streams);
int run_serve(const serve_command& command, const command_streams& streams);
int run_bench(const bench_command& command, const command_streams& streams);
// Prints two tables of bench --prefix-cache.
void measure_prefix_cache(text_engine& model, const bench_command& command, std::ostream& out);
int run_info(const info_command& command, const command_streams& streams);
int run_quantize(const quantize_command& command, const command_streams& streams);
int run_tokenize(const tokenize_command& command, const command_streams& streams);
int run_perplexity(const perplexity_command& command, const command_streams& streams);

// Parses the command line and runs the command; errors are printed to err.
int run_command(int argc, const char* const* argv, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace imbrex::engine
