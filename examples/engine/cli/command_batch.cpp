// batch: many requests from a file, results in the same order. Requests are submitted as they come and served with
// continuous batching, so results appear before the input ends. An invalid line gets an error message as its result.
#include <deque>
#include <filesystem>
#include <fstream>
#include <imbrex/core/error.hpp>
#include <istream>
#include <map>
#include <optional>
#include <ostream>
#include <unordered_map>

#include "engine/cli/batch_jsonl.hpp"
#include "engine/cli/command_model.hpp"
#include "engine/cli/line_reader.hpp"
#include "engine/cli/progress_bar.hpp"

namespace imbrex::engine {

namespace {

constexpr int usual_tokens = 256;

struct job {
    int number = 0;  // line number
    std::string id{};
    int prompt_tokens = 0;
    bool with_logprobs = false;
    written_text written{};
    std::optional<chat_output_parser> parser{};  // in a chat
    chat_output answer{};
    std::string result{};  // when finished
};

// The requests between the input and the output.
class batch_server {
  public:
    batch_server(text_engine& model, const batch_command& command, const command_streams& streams, std::ostream& out)
        : model_(model),
          command_(command),
          out_(out),
          format_(format_of(command.format, model.tokens(), model.chat())),
          variables_(variables_of(command.format)),
          usual_constraint_(constraint_of(command.text, model)),
          bar_(streams.err, is_terminal(streams.err), "batch", "requests") {}

    void take(const std::string& line) {
        ++lines_;
        if (line.find_first_not_of(" \t\r") == std::string::npos) return;
        job& it = jobs_.emplace_back(job{.number = lines_});
        ++requests_;
        it.id = batch_request_id(line, it.number);
        try {
            of_sequence_[submit(it, line)] = &it;
        } catch (const error& failure) {
            it.result = error_line(it.id, it.number, failure.what());
            ++refused_;
            ++done_;
            write_results();
        }
    }

    void step() {
        for (text_event& each : model_.step()) {
            job& it = *of_sequence_.at(each.id);
            if (it.parser) {
                it.answer.append(it.parser->push(each.text));
            } else {
                it.written.text += each.text;
            }
            it.written.tokens.push_back(std::move(each.sampled));
            it.written.reason = each.reason;
            if (each.reason == finish_reason::none) continue;
            if (it.parser) it.answer.append(it.parser->finish());
            it.result = result_line(it.id, it.written, it.parser ? &it.answer : nullptr, it.prompt_tokens,
                                    model_.tokens(), it.with_logprobs);
            of_sequence_.erase(each.id);
            ++done_;
            write_results();
        }
        bar_.update(done_, requests_);
    }

    void finish() { bar_.clear(); }
    std::int64_t requests() const { return requests_; }
    std::int64_t refused() const { return refused_; }

  private:
    sequence_id submit(job& it, const std::string& line) {
        generation_args usual = command_.text;
        // Lines without a seed get different seeds, and a second run gives the same texts.
        usual.seed = command_.text.seed.value_or(0) + static_cast<std::uint64_t>(it.number - 1);
        const batch_request wanted = parse_batch_request(line, it.number, usual);
        text_options options{
            .sampling = wanted.text.sampling, .ends = !wanted.ignores_eos, .priority = wanted.priority};
        options.sampling.seed = wanted.text.seed.value_or(0);
        it.with_logprobs = options.sampling.logprobs > 0;
        std::vector<int> prompt = prompt_of(wanted);
        options.sampling.constraint = constraint_for(wanted);
        if (wanted.chat) {
            if (options.sampling.constraint)
                options.sampling.constraint =
                    format_->constrained_answer(options.sampling.constraint, prompt, model_.token_trie());
            options.eos_tokens = format_->end_tokens();
            options.special = tokenizer::special_tokens::marked;
            it.parser = format_->output_parser(prompt);
        }
        if (wanted.chat || (wanted.prompt.empty() && wanted.prompt_tokens.empty()))
            options.position = incremental_detokenizer::text_position::beginning;
        it.prompt_tokens = static_cast<int>(prompt.size());
        options.max_tokens = wanted.text.max_tokens.value_or(tokens_that_fit(model_, prompt.size(), usual_tokens));
        return model_.submit(std::move(prompt), options);
    }

    // Lines with the same format share a constraint, and so its masks.
    shared_constraint constraint_for(const batch_request& wanted) {
        if (!wanted.response_format) return usual_constraint_;
        const auto [found, is_new] = constraints_.try_emplace(wanted.response_format->dump());
        if (!is_new) return found->second;
        try {
            found->second = constraint_of_response_format(*wanted.response_format, model_.token_trie());
        } catch (...) {
            constraints_.erase(found);
            throw;
        }
        return found->second;
    }

    std::vector<int> prompt_of(const batch_request& wanted) const {
        if (wanted.chat) return encoded_chat(*wanted.chat);
        return wanted.prompt_tokens.empty() ? model_.encode_prompt(wanted.prompt) : wanted.prompt_tokens;
    }

    std::vector<int> encoded_chat(chat_request request) const {
        require(format_.has_value(), "\"messages\": this model has no chat template; \"prompt\" works, or --template");
        auto variables = variables_;
        variables.update(request.variables);
        request.variables = std::move(variables);
        return format_->encode(request);
    }

    void write_results() {
        bar_.clear();
        for (; !jobs_.empty() && !jobs_.front().result.empty(); jobs_.pop_front()) out_ << jobs_.front().result << "\n";
        check_written(out_, command_.output.empty() ? "the output" : "--output: " + command_.output);
    }

    text_engine& model_;
    const batch_command& command_;
    std::ostream& out_;
    std::optional<chat_format> format_;
    nlohmann::ordered_json variables_;
    shared_constraint usual_constraint_;
    std::map<std::string, shared_constraint> constraints_;  // of response formats
    progress_bar bar_;
    std::deque<job> jobs_;  // not yet written; references stay valid
    std::unordered_map<sequence_id, job*> of_sequence_;
    int lines_ = 0;
    std::int64_t requests_ = 0, refused_ = 0, done_ = 0;
};

std::shared_ptr<std::ifstream> open_input(const std::string& path) {
    require(!std::filesystem::is_directory(path), "--input: ", path, " is a directory");
    auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
    require(file->good(), "--input: ", path, " cannot be read");
    return file;
}

}  // namespace

int run_batch(const batch_command& command, const command_streams& streams) {
    std::shared_ptr<std::ifstream> input_file;
    if (!command.input.empty()) input_file = open_input(command.input);
    background_engine_loader loading(open_model(command.model, streams.err), options_of(command.model));
    const std::unique_ptr<text_engine> model = loading.wait(streams.err);
    std::ofstream output_file;
    if (!command.output.empty()) {
        output_file.open(command.output, std::ios::binary);
        require(output_file.good(), "--output: ", command.output, " cannot be written");
    }
    std::ostream& out = command.output.empty() ? streams.out : output_file;

    batch_server server(*model, command, streams, out);
    line_reader reader(input_file ? *input_file : streams.in, input_file);
    while (!reader.at_end() || !model->idle()) {
        auto waits = model->idle() ? line_reader::waiting::yes : line_reader::waiting::no;
        while (const auto line = reader.next(waits)) {
            server.take(*line);
            waits = line_reader::waiting::no;
        }
        if (!model->idle()) server.step();
    }
    server.finish();
    if (server.refused() > 0) {
        streams.err << server.refused() << " of " << server.requests()
                    << " requests failed; their lines have the errors\n";
    }
    write_statistics(command.model, *model, streams);
    return server.refused() > 0 ? exit_error : exit_success;
}

}  // namespace imbrex::engine
