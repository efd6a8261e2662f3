// batch: many requests from a file, results in the same order. All requests are submitted at once and served with
// continuous batching. An invalid line gets an error message as its result.
#include <fstream>
#include <imbrex/core/error.hpp>
#include <istream>
#include <optional>
#include <ostream>
#include <unordered_map>

#include "engine/cli/batch_jsonl.hpp"
#include "engine/cli/command_model.hpp"
#include "engine/cli/progress_bar.hpp"

namespace imbrex::engine {

namespace {

constexpr int usual_tokens = 256;

struct job {
    int number = 0;  // line number
    std::string line{};
    std::string id{};
    int prompt_tokens = 0;
    bool with_logprobs = false;
    written_text written{};
    std::string result{};  // when finished
};

std::vector<job> read_jobs(std::istream& in) {
    std::vector<job> jobs;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        if (line.find_first_not_of(" \t\r") != std::string::npos) jobs.push_back({.number = number, .line = line});
    }
    return jobs;
}

sequence_id submit(text_engine& model, job& it, const generation_args& usual) {
    const batch_request wanted = parse_batch_request(it.line, it.number, usual);
    text_options options{.sampling = wanted.text.sampling, .priority = wanted.priority};
    options.sampling.seed = wanted.text.seed.value_or(0);
    it.with_logprobs = options.sampling.logprobs > 0;
    std::vector<int> prompt;
    if (wanted.messages.empty()) {
        prompt = model.encode_prompt(wanted.prompt);
        if (wanted.prompt.empty()) options.position = incremental_detokenizer::text_position::beginning;
    } else {
        const auto style = chat_template_of(model.tokens());
        require(style.has_value(), "\"messages\": this model's vocabulary has no chat template; \"prompt\" works");
        prompt = encode_chat(model.tokens(), *style, wanted.messages);
        options.eos_tokens = {end_of_turn(model.tokens(), *style)};
        options.position = incremental_detokenizer::text_position::beginning;
    }
    it.prompt_tokens = static_cast<int>(prompt.size());
    options.max_tokens = wanted.text.max_tokens.value_or(tokens_that_fit(model, prompt.size(), usual_tokens));
    return model.submit(std::move(prompt), options);
}

}  // namespace

int run_batch(const batch_command& command, const command_streams& streams) {
    std::ifstream input_file;
    if (!command.input.empty()) {
        input_file.open(command.input, std::ios::binary);
        require(input_file.good(), "--input: ", command.input, " cannot be read");
    }
    background_engine_loader loading(open_model(command.model.path), options_of(command.model));
    std::vector<job> jobs = read_jobs(command.input.empty() ? streams.in : input_file);
    const std::unique_ptr<text_engine> model = loading.wait(streams.err);
    std::ofstream output_file;
    if (!command.output.empty()) {
        output_file.open(command.output, std::ios::binary);
        require(output_file.good(), "--output: ", command.output, " cannot be written");
    }
    std::ostream& out = command.output.empty() ? streams.out : output_file;

    std::int64_t refused = 0, done = 0;
    std::unordered_map<sequence_id, job*> of_sequence;
    for (job& it : jobs) {
        it.id = batch_request_id(it.line, it.number);
        generation_args usual = command.text;
        // Lines without a seed get different seeds, and a second run gives the same texts.
        usual.seed = command.text.seed.value_or(0) + static_cast<std::uint64_t>(it.number - 1);
        try {
            of_sequence[submit(*model, it, usual)] = &it;
        } catch (const error& failure) {
            it.result = error_line(it.id, it.number, failure.what());
            ++refused;
            ++done;
        }
        it.line = {};
    }

    progress_bar bar(streams.err, is_terminal(streams.err), "batch", "requests");
    std::size_t next = 0;  // first result not yet written
    const auto write_results = [&] {
        for (; next < jobs.size() && !jobs[next].result.empty(); ++next) {
            out << jobs[next].result << "\n";
            jobs[next] = {};
        }
        out.flush();
        require(out.good(), "--output: ", command.output.empty() ? std::string("the output") : command.output,
                " cannot be written");
    };
    write_results();
    while (!model->idle()) {
        for (text_event& each : model->step()) {
            job& it = *of_sequence.at(each.id);
            it.written.text += each.text;
            it.written.tokens.push_back(std::move(each.sampled));
            it.written.reason = each.reason;
            if (each.reason == finish_reason::none) continue;
            it.result = result_line(it.id, it.written, it.prompt_tokens, model->tokens(), it.with_logprobs);
            ++done;
            bar.clear();
            write_results();
        }
        bar.update(done, static_cast<std::int64_t>(jobs.size()));
    }
    bar.clear();
    if (refused > 0)
        streams.err << refused << " of " << jobs.size() << " requests failed; their lines have the errors\n";
    if (command.model.shows_statistics) streams.err << model->summary().text();
    return refused > 0 ? exit_error : exit_success;
}

}  // namespace imbrex::engine
