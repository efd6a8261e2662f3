// Shared by the commands: opens the model of the command line, loads it in the background with a progress bar, and
// streams generated text.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "engine/chat/chat_format.hpp"
#include "engine/cli/commands.hpp"
#include "engine/serving/text_engine.hpp"

namespace imbrex::engine {

// Whether the stream is a terminal.
bool is_terminal(const std::istream& stream);
bool is_terminal(const std::ostream& stream);

// The format of --weights; as_in_file for "file".
weight_format weight_format_named(const std::string& name);

// --weights-budget, which belongs to --weights mixed.
double mixture_size(const std::string& weights, std::optional<double> budget);

// The format of --kv-cache; by_device for "auto".
kv_cache_format kv_cache_format_named(const std::string& name);

// --speculate, --draft-model and --draft-tokens. Opens the draft model.
speculation_options speculation_of(const model_args& choice);

engine_options options_of(const model_args& choice);

// The model of the path or of --random.
model_files open_model(const model_args& choice, std::ostream& err);

// Loads and converts the weights in the background.
class background_engine_loader {
  public:
    background_engine_loader(model_files files, const engine_options& options);
    background_engine_loader(const background_engine_loader&) = delete;
    background_engine_loader& operator=(const background_engine_loader&) = delete;

    // Waits with a progress bar on the stream. Returns the engine or throws the error of loading.
    std::unique_ptr<text_engine> wait(std::ostream& err);

  private:
    std::atomic<std::int64_t> done_ = 0, all_ = 0;
    std::future<std::unique_ptr<text_engine>> engine_;
};

struct written_text {
    std::string text;
    std::vector<sampled_token> tokens;  // includes the EOS token
    finish_reason reason = finish_reason::none;
    double ttft_seconds = 0;
    double seconds = 0;
};

// Writes a text at once; without control characters to a terminal.
void print_text(std::ostream& out, const std::string& text);

// Hands the text over as it comes, with a progress bar for a long prompt; without a function it is printed. Ctrl-C cancels it
// within a second, also during the prompt.
written_text write_text(text_engine& model, std::vector<int> prompt, const text_options& options,
                        const command_streams& streams, const std::function<void(const std::string&)>& take = {});

// Statistics at the end, if the options ask for them.
void write_statistics(const model_args& choice, const text_engine& model, const command_streams& streams);

// The chat format that the options select; nothing for "none", or if the model has none.
std::optional<chat_format> format_of(const template_args& choice, const tokenizer& tokens, const chat_source& own);

// The variables of the template as an object.
nlohmann::ordered_json variables_of(const template_args& choice);

// The content of a file; `option` names it in errors.
std::string read_text_file(const std::string& path, const char* option);

// Throws unless everything has been written.
void check_written(std::ostream& out, const std::string& name);

// "37 tokens, 45.2 a second, the first after 12 ms"
std::string figures_of(const written_text& written);

// --json-schema or --regex as a constraint; null without them.
shared_constraint constraint_of(const generation_args& choice, const text_engine& model);

// The given seed, or a random one.
std::uint64_t seed_of(const generation_args& choice);

}  // namespace imbrex::engine
