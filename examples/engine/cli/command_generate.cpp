// generate: continues one prompt.
#include <cstdio>
#include <imbrex/core/error.hpp>
#include <istream>
#include <iterator>
#include <ostream>

#include "engine/cli/command_model.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr int usual_tokens = 256;

std::string prompt_of(const generate_command& command, const command_streams& streams) {
    if (command.prompt) return *command.prompt;
    std::string text;
    if (!command.file.empty()) {
        text = read_text_file(command.file, "--file");
    } else {
        if (is_terminal(streams.in)) streams.err << "Enter the prompt, then Ctrl-D:\n" << std::flush;
        text.assign(std::istreambuf_iterator<char>(streams.in), {});
    }
    // Drop the line break at the end of the file.
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

void print_logprobs(const text_engine& model, const written_text& written, std::ostream& out) {
    const auto shown = [&](int id) {
        return id < model.tokens().size() ? printable(model.tokens().at(id).bytes) : std::string("no token");
    };
    char number[32];
    const auto print = [&](int id, float logprob) {
        std::snprintf(number, sizeof number, "%9.4f  ", static_cast<double>(logprob));
        out << number << shown(id);
    };
    for (const sampled_token& each : written.tokens) {
        print(each.token, each.logprob);
        for (const token_logprob& other : each.top_logprobs) print(other.token, other.value);
        out << "\n";
    }
}

}  // namespace

int run_generate(const generate_command& command, const command_streams& streams) {
    background_engine_loader loading(open_model(command.model.path), options_of(command.model));
    const std::string prompt = prompt_of(command, streams);
    const std::unique_ptr<text_engine> model = loading.wait(streams.err);

    std::vector<int> ids = model->encode_prompt(prompt, command.parses_special);
    text_options options{
        .max_tokens = command.text.max_tokens.value_or(tokens_that_fit(*model, ids.size(), usual_tokens)),
        .sampling = command.text.sampling};
    options.sampling.seed = seed_of(command.text);
    options.sampling.constraint = constraint_of(command.text, *model);
    if (prompt.empty()) options.position = incremental_detokenizer::text_position::beginning;
    if (command.repeats_prompt) streams.out << prompt;
    const written_text written = write_text(*model, std::move(ids), options, streams);
    streams.out << "\n";
    if (options.sampling.logprobs > 0) print_logprobs(*model, written, streams.out);
    if (command.model.shows_statistics && !command.model.statistics_are_json) {
        streams.err << figures_of(written) << "; seed " << options.sampling.seed
                    << "; finish: " << name_of(written.reason) << "\n";
    }
    write_statistics(command.model, *model, streams);
    return written.reason == finish_reason::cancelled ? exit_interrupted : exit_success;
}

}  // namespace imbrex::engine
