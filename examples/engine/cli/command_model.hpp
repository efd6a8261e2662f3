// What the commands share: a model opened as the command line says, loaded in the background with a bar that shows how far it is, and a text
// written to a stream while it is made.
#pragma once

#include <atomic>
#include <future>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "engine/cli/commands.hpp"
#include "engine/serving/text_engine.hpp"

namespace imbrex::engine {

// Whether people look at it, or type into it.
bool is_terminal(const std::istream& stream);
bool is_terminal(const std::ostream& stream);

engine_options options_of(const model_args& choice);

// Weights are loaded, and made into the form that is wanted, while the caller does something else.
class background_engine_loader {
  public:
    background_engine_loader(model_files files, const engine_options& options);
    background_engine_loader(const background_engine_loader&) = delete;
    background_engine_loader& operator=(const background_engine_loader&) = delete;

    // Waits for it, with a bar on the stream, and gives the engine, or throws why there is none.
    std::unique_ptr<text_engine> wait(std::ostream& err);

  private:
    std::atomic<std::int64_t> done_ = 0, all_ = 0;
    std::future<std::unique_ptr<text_engine>> engine_;
};

struct written_text {
    std::string text;
    std::vector<sampled_token> tokens;  // the end token is among them
    finish_reason reason = finish_reason::none;
    double ttft_seconds = 0;
    double seconds = 0;
};

// Writes the text as it comes. Ctrl-C cancels it.
written_text write_text(text_engine& model, std::vector<int> prompt, const text_options& options, std::ostream& out);

// "37 tokens, 45.2 a second, the first after 12 ms"
std::string figures_of(const written_text& written);

// The seed that was asked for, or one that nobody knows.
std::uint64_t seed_of(const generation_args& choice);

}  // namespace imbrex::engine
