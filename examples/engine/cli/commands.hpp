// The commands of the program, each a function of what its command line said. command_line.cpp reads that; here nobody knows of it, so the
// commands can be tested with streams of any kind. They return the program's exit code, and throw imbrex::error with a sentence.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "engine/serving/sampling_params.hpp"

namespace imbrex::engine {

struct command_streams {
    std::istream& in;
    std::ostream& out;
    std::ostream& err;  // progress, statistics and remarks: what is no result
};

inline constexpr int exit_success = 0, exit_error = 1, exit_usage = 2, exit_interrupted = 130;

// How a model is run.
struct model_args {
    std::string path;
    std::string device = "auto";                    // auto, cpu, cuda
    std::string weights = "file";                   // file, f32, bf16, e4m3, int8, int4
    int threads = 0;                                // 0: all cores
    std::uint64_t memory = std::uint64_t{2} << 30;  // of the cache at most, in bytes; 0: no limit
    int context = 0;                                // 0: the model's
    int max_num_batched_tokens = 512;
    int sequences = 1;  // at a time; 0: all, for bench
    bool batch_invariant = false;
    bool shows_statistics = false;
};

// How a text is made. What is not said is up to the command.
struct generation_args {
    std::optional<int> max_tokens;
    std::optional<std::uint64_t> seed;
    sampling_params sampling{.temperature = 0.8f, .bias = {}, .stop = {}};
};

struct chat_command {
    model_args model;
    generation_args text;
    std::string system;
    std::string style = "auto";  // auto, none, llama2, llama3, chatml
};
struct generate_command {
    model_args model;
    generation_args text;
    std::optional<std::string> prompt;  // otherwise from the file, otherwise from the input
    std::string file;
    bool repeats_prompt = false;
};
struct batch_command {
    model_args model;
    generation_args text;       // of lines that say nothing else
    std::string input, output;  // file names; empty: the streams
};
struct bench_command {
    model_args model;
    std::string random;             // a known model's name, instead of a path
    std::vector<int> requests{1};   // a row of the table each
    int input = 128, output = 128;  // tokens of a request
};
struct info_command {
    std::string path;
    bool lists_tensors = false;
};

int run_chat(const chat_command& command, const command_streams& streams);
int run_generate(const generate_command& command, const command_streams& streams);
int run_batch(const batch_command& command, const command_streams& streams);
int run_bench(const bench_command& command, const command_streams& streams);
int run_info(const info_command& command, const command_streams& streams);

// Reads the command line and runs what it says; refusals become a sentence on err.
int run_command(int argc, const char* const* argv, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace imbrex::engine
