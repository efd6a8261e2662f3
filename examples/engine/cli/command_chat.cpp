// chat: a conversation, line by line. With a chat template the model answers; without one it continues the input, and
// the next line continues from there.
#include <imbrex/core/error.hpp>
#include <ostream>
#include <utility>

#include "engine/cli/command_model.hpp"
#include "engine/cli/line_editor.hpp"

namespace imbrex::engine {

namespace {

constexpr int usual_tokens = 1024;

constexpr const char* help_text =
    "  /reset    forgets the conversation\n"
    "  /help     this text\n"
    "  /quit     ends the program, as Ctrl-D does\n"
    "A line that ends with a backslash is continued in the next. Ctrl-C stops the answer.\n";

// The conversation, as tokens for the next turn. If it exceeds the context, the oldest turns are dropped.
class conversation {
  public:
    conversation(const text_engine& model, std::optional<chat_format> format, const chat_command& command)
        : model_(model), format_(std::move(format)), system_(command.system) {
        require(format_ || system_.empty(), "--system: without a chat template there is no system message");
        request_.variables = variables_of(command.format);
        constraint_ = constraint_of(command.text, model);
        reset();
    }

    void reset() {
        request_.messages = nlohmann::ordered_json::array();
        if (!system_.empty()) say("system", system_);
        ids_.clear();
    }

    // The prompt of the next turn, with space for `left` tokens after it if possible.
    std::vector<int> ask(const std::string& line, int left) {
        if (format_) say("user", line);
        std::vector<int> prompt = encoded(line);
        while (static_cast<int>(prompt.size()) + left > model_.max_sequence_length() && drop_oldest()) {
            dropped_ = true;
            prompt = encoded(line);
        }
        if (!format_) ids_ = prompt;
        return prompt;
    }

    // The reasoning is not kept: templates drop that of earlier turns.
    void answered(const written_text& written, const chat_output& answer) {
        if (format_) {
            say("assistant", answer.content);
            if (!answer.tool_calls.empty()) request_.messages.back()["tool_calls"] = to_json(answer.tool_calls);
            return;
        }
        for (const sampled_token& each : written.tokens) ids_.push_back(each.token);
        if (written.reason == finish_reason::eos_token)
            ids_.clear();  // the text has ended: the next line begins another
    }

    // Undoes a failed turn.
    void take_back() {
        auto& messages = request_.messages;
        if (format_ && !messages.empty() && messages.back()["role"] == "user") messages.erase(messages.size() - 1);
        if (!format_) ids_.clear();
    }

    bool dropped() { return std::exchange(dropped_, false); }

    text_options options(const generation_args& choice, const std::vector<int>& prompt) const {
        text_options result{.sampling = choice.sampling};
        result.sampling.constraint = constraint_;
        if (!format_) return result;
        if (constraint_)
            result.sampling.constraint = format_->constrained_answer(constraint_, prompt, model_.token_trie());
        result.eos_tokens = format_->end_tokens();
        result.position = incremental_detokenizer::text_position::beginning;
        result.special = tokenizer::special_tokens::marked;
        return result;
    }

    std::optional<chat_output_parser> output_parser(const std::vector<int>& prompt) const {
        if (!format_) return {};
        return format_->output_parser(prompt);
    }

  private:
    void say(const char* role, const std::string& text) {
        request_.messages.push_back({{"role", role}, {"content", text}});
    }

    std::vector<int> encoded(const std::string& line) const {
        if (format_) return format_->encode(request_);
        if (ids_.empty()) return model_.encode_prompt(line);
        std::vector<int> prompt = ids_;
        const std::vector<int> more = model_.tokens().encode(line, {.add_special_tokens = false});
        prompt.insert(prompt.end(), more.begin(), more.end());
        return prompt;
    }

    bool drop_oldest() {
        if (!format_) {
            const bool was_there = !ids_.empty();
            ids_.clear();
            return was_there;
        }
        auto& messages = request_.messages;
        const std::size_t first = system_.empty() ? 0 : 1;
        if (messages.size() - first < 3) return false;  // keep the last question
        messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(first),
                       messages.begin() + static_cast<std::ptrdiff_t>(first) + 2);
        return true;
    }

    const text_engine& model_;
    std::optional<chat_format> format_;
    std::string system_;
    shared_constraint constraint_;
    chat_request request_;  // with a template
    std::vector<int> ids_;  // without
    bool dropped_ = false;
};

// A line with its continuation lines; nothing at the end of the input.
std::optional<std::string> read_message(line_editor& input) {
    std::string all;
    const char* prompt = "> ";
    while (auto line = input.read(prompt)) {
        if (!line->ends_with('\\')) return all + *line;
        line->back() = '\n';
        all += *line;
        prompt = ". ";
    }
    if (all.empty()) return {};
    return all;
}

// Prints an answer as it comes.
class answer_printer {
  public:
    answer_printer(const command_streams& streams, bool shows_reasoning)
        : streams_(streams), shows_reasoning_(shows_reasoning), dims_(is_terminal(streams.err)) {}

    void print(const chat_output& more) {
        if (shows_reasoning_ && !more.reasoning.empty()) {
            if (dims_) streams_.err << "\x1b[2m";
            print_text(streams_.err, more.reasoning);
            if (dims_) streams_.err << "\x1b[0m";
            is_reasoning_ = true;
        }
        if (!more.content.empty()) end_reasoning();
        print_text(streams_.out, more.content);
    }

    void end_reasoning() {
        if (std::exchange(is_reasoning_, false)) streams_.err << "\n\n" << std::flush;
    }

  private:
    const command_streams& streams_;
    bool shows_reasoning_, dims_;
    bool is_reasoning_ = false;
};

// What the user does not see in the answer.
void explain(const chat_output& answer, const written_text& written, std::ostream& err) {
    for (const tool_call& call : answer.tool_calls)
        err << "(the model calls " << call.name << "(" << call.arguments << "); there are no tools here)\n";
    if (written.reason == finish_reason::length && answer.content.empty() && !answer.reasoning.empty())
        err << "(the answer ended within its reasoning, after " << written.tokens.size()
            << " tokens; --max-tokens allows more)\n";
}

void answer(text_engine& model, conversation& talk, const std::string& line, const chat_command& command,
            std::uint64_t seed, const command_streams& streams) {
    const int wanted = command.text.max_tokens.value_or(std::min(usual_tokens, model.max_sequence_length() / 2));
    const std::vector<int> prompt = talk.ask(line, wanted);
    if (talk.dropped()) streams.err << "(the context is full: the oldest turns are dropped)\n";
    text_options options = talk.options(command.text, prompt);
    options.max_tokens = command.text.max_tokens ? wanted : tokens_that_fit(model, prompt.size(), wanted);
    options.sampling.seed = seed;
    std::optional<chat_output_parser> parser = talk.output_parser(prompt);
    answer_printer printer(streams, command.reasoning == "show");
    chat_output said;
    const auto take = [&](const chat_output& more) {
        printer.print(more);
        said.append(more);
    };
    const written_text written = write_text(model, prompt, options, streams, [&](const std::string& text) {
        take(parser ? parser->push(text) : chat_output{.content = text});
    });
    if (parser) take(parser->finish());
    printer.end_reasoning();
    talk.answered(written, said);
    streams.out << "\n" << std::flush;
    explain(said, written, streams.err);
    if (command.model.shows_statistics && !command.model.statistics_are_json)
        streams.err << "(" << figures_of(written) << ")\n";
}

}  // namespace

int run_chat(const chat_command& command, const command_streams& streams) {
    model_files files = open_model(command.model.path);
    if (is_terminal(streams.in)) streams.err << files.name << ". Type /help for help.\n";
    background_engine_loader loading(std::move(files), options_of(command.model));
    std::unique_ptr<text_engine> model;
    std::optional<conversation> talk;
    std::uint64_t seed = seed_of(command.text);
    const auto load = [&] {  // the model loads while the user types
        if (model) return;
        model = loading.wait(streams.err);
        talk.emplace(*model, format_of(command.format, model->tokens(), model->chat()), command);
    };
    if (!is_terminal(streams.in) || !command.system.empty()) load();
    line_editor input(streams);
    while (const std::optional<std::string> line = read_message(input)) {
        if (line->empty()) continue;
        if (*line == "/quit") break;
        load();
        if (*line == "/reset") {
            talk->reset();
        } else if (*line == "/help") {
            streams.err << help_text;
        } else {
            try {
                answer(*model, *talk, *line, command, seed++, streams);
            } catch (const invalid_argument& failure) {  // usually too long: the conversation continues without it
                talk->take_back();
                streams.err << "(" << failure.what() << ")\n";
            }
        }
    }
    load();
    write_statistics(command.model, *model, streams);
    return exit_success;
}

}  // namespace imbrex::engine
