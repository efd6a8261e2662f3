#include "engine/chat/chat_output.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "engine/tokenizer/tokenizer.hpp"

namespace imbrex::engine {

namespace {

constexpr std::string_view white_space = " \t\r\n";

std::string_view without_leading_space(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(white_space), text.size()));
}

std::string_view without_trailing_space(std::string_view text) {
    return text.substr(0, text.find_last_not_of(white_space) + 1);
}

std::string_view first_word(std::string_view text) {
    return text.substr(0, text.find_first_of(white_space));
}

}  // namespace

// The states of a format. Text and special tokens come in pieces.
class chat_output_parser::grammar {
  public:
    virtual ~grammar() = default;
    virtual void begin(std::string_view prompt) = 0;
    virtual void text(std::string_view piece) = 0;
    virtual void special(std::string_view name) = 0;
    virtual void finish() = 0;

    chat_output output;  // what is new
};

namespace {

// Hands the text over in pieces; `held` keeps an incomplete special token for the next time.
void divide(std::string& held, std::string_view text, chat_output_parser::grammar& to) {
    const std::string all = std::exchange(held, {}).append(text);
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t begin = std::min(all.find(special_token_mark, at), all.size());
        if (begin > at) to.text(std::string_view(all).substr(at, begin - at));
        if (begin == all.size()) return;
        const std::size_t end = all.find(special_token_mark, begin + 1);
        if (end == std::string::npos) {
            held = all.substr(begin);
            return;
        }
        to.special(std::string_view(all).substr(begin + 1, end - begin - 1));
        at = end + 1;
    }
}

struct tag_pair {
    std::string_view begin, end;
};
constexpr std::array<tag_pair, 3> all_tags{
    {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}}};

// White space around the reasoning is dropped.
class tag_grammar : public chat_output_parser::grammar {
  public:
    void begin(std::string_view prompt) override {
        std::string plain;
        std::ranges::copy_if(prompt, std::back_inserter(plain), [](char c) { return c != special_token_mark; });
        for (const tag_pair& one : all_tags) {
            if (without_trailing_space(plain).ends_with(one.begin)) enter_reasoning(one);
        }
    }

    void text(std::string_view piece) override {
        held_ += piece;
        if (state_ == state::calls) return;
        if (state_ == state::beginning) find_begin();
        if (state_ == state::reasoning) find_end();
        if (state_ == state::after_reasoning) {
            held_ = without_leading_space(held_);
            if (!held_.empty()) state_ = state::content;
        }
        if (state_ == state::content) output.content += std::exchange(held_, {});
    }

    // Some vocabularies have the tags as special tokens.
    void special(std::string_view name) override {
        if (std::ranges::any_of(all_tags, [&](const tag_pair& one) { return name == one.begin || name == one.end; }))
            return text(name);
        if (state_ == state::calls) held_ += name;  // [ARGS], or the next [TOOL_CALLS]
        if (name != begin_of_calls || state_ == state::calls || state_ == state::reasoning) return;
        output.content += std::exchange(held_, {});
        state_ = state::calls;
    }

    void finish() override {
        if (state_ == state::calls) output.tool_calls = parse_mistral_calls(held_);
        const bool is_no_call = state_ == state::calls && output.tool_calls.empty();
        if (state_ == state::beginning || is_no_call) output.content += held_;
        if (state_ == state::reasoning) reason(without_trailing_space(held_));
        held_.clear();
    }

  private:
    enum class state { beginning, reasoning, after_reasoning, content, calls };
    static constexpr std::string_view begin_of_calls = "[TOOL_CALLS]";

    void enter_reasoning(const tag_pair& tags) {
        state_ = state::reasoning;
        end_ = tags.end;
    }

    void find_begin() {
        const std::string_view written = without_leading_space(held_);
        for (const tag_pair& one : all_tags) {
            if (written.starts_with(one.begin)) {
                held_ = std::string(written.substr(one.begin.size()));
                return enter_reasoning(one);
            }
            if (one.begin.starts_with(written)) return;  // undecided
        }
        state_ = state::content;
    }

    void find_end() {
        if (const std::size_t at = held_.find(end_); at != std::string::npos) {
            reason(without_trailing_space(std::string_view(held_).substr(0, at)));
            held_.erase(0, at + end_.size());
            state_ = state::after_reasoning;
            return;
        }
        // What may be the beginning of the end, and the white space before it, waits.
        std::size_t open = std::min(end_.size() - 1, held_.size());
        while (!held_.ends_with(end_.substr(0, open))) --open;
        const std::size_t safe = without_trailing_space(std::string_view(held_).substr(0, held_.size() - open)).size();
        reason(std::string_view(held_).substr(0, safe));
        held_.erase(0, safe);
    }

    void reason(std::string_view text) {
        if (!has_reasoned_) text = without_leading_space(text);
        has_reasoned_ |= !text.empty();
        output.reasoning += text;
    }

    state state_ = state::beginning;
    std::string_view end_;
    std::string held_;
    bool has_reasoned_ = false;
};

// A message has a header: a role, a channel and a recipient ("assistant<|channel|>commentary to=functions.name"). Messages
// in the channel analysis are reasoning; those to a function are tool calls; all others are content, also those in unknown
// channels. Several messages of a kind are separated by a line break.
class harmony_grammar : public chat_output_parser::grammar {
  public:
    void begin(std::string_view prompt) override {
        const std::size_t at = prompt.rfind(start);
        if (at == std::string_view::npos) return begin_body(to::content, {});
        std::string held;
        divide(held, prompt.substr(at), *this);
        output = {};
    }

    void text(std::string_view piece) override {
        if (part_ == part::role) {
            role_ += piece;
            check_role();
        } else if (part_ == part::channel) {
            channel_ += piece;
            if (channel_.size() > longest_header) begin_body(to::content, std::exchange(channel_, {}));
        } else {
            write(piece);
        }
    }

    void special(std::string_view name) override {
        if (name == "<|start|>" || is_end(name)) {
            end_message();
        } else if (name == "<|channel|>") {
            if (part_ == part::body) end_message();
            part_ = part::channel;
        } else if (name == "<|constrain|>" && part_ == part::channel) {
            channel_ += ' ';  // the format of the arguments follows
        } else if (name == "<|message|>" && part_ != part::body) {
            begin_body(destination(), {});
        }
    }

    void finish() override { end_message(); }

  private:
    enum class part { role, channel, body };
    enum class to { reasoning, content, function };
    static constexpr std::size_t longest_header = 200;
    static constexpr std::string_view start = "\xff<|start|>\xff";
    static_assert(start.front() == special_token_mark && start.back() == special_token_mark);
    static constexpr std::string_view assistant = "assistant", recipient = "to=", functions = "functions.";

    static bool is_end(std::string_view name) {
        return name == "<|end|>" || name == "<|return|>" || name == "<|call|>";
    }

    // A model that does not know the format continues "<|start|>assistant" with its answer.
    void check_role() {
        if (role_.starts_with(assistant)) {
            const std::string_view rest = std::string_view(role_).substr(assistant.size()),
                                   word = without_leading_space(rest);
            const bool is_header = word.empty() || (word.size() < rest.size() &&
                                                    (recipient.starts_with(word) || word.starts_with(recipient)));
            if (!is_header) return begin_body(to::content, std::string(rest));
        }
        if (role_.size() > longest_header) begin_body(to::content, std::exchange(role_, {}));
    }

    to destination() {
        const std::string header = role_ + " " + channel_;
        if (const std::size_t at = header.find(" to="); at != std::string::npos) {
            std::string_view name = first_word(std::string_view(header).substr(at + 4));
            if (name.starts_with(functions)) name.remove_prefix(functions.size());
            function_ = name;
            return to::function;
        }
        return first_word(without_leading_space(channel_)) == "analysis" ? to::reasoning : to::content;
    }

    void begin_body(to destination, std::string_view text) {
        part_ = part::body;
        to_ = destination;
        is_new_ = true;
        write(text);
    }

    void write(std::string_view piece) {
        if (piece.empty()) return;
        if (to_ == to::function) {
            arguments_ += piece;
            return;
        }
        bool& has_some = to_ == to::reasoning ? has_reasoning_ : has_content_;
        std::string& text = to_ == to::reasoning ? output.reasoning : output.content;
        if (std::exchange(is_new_, false) && std::exchange(has_some, true)) text += '\n';
        text += piece;
    }

    void end_message() {
        if (part_ == part::body && to_ == to::function)
            output.tool_calls.push_back({std::exchange(function_, {}), std::exchange(arguments_, {})});
        part_ = part::role;
        role_.clear();
        channel_.clear();
    }

    part part_ = part::role;
    to to_ = to::content;
    std::string role_, channel_, function_, arguments_;
    bool is_new_ = true, has_reasoning_ = false, has_content_ = false;
};

std::unique_ptr<chat_output_parser::grammar> grammar_of(chat_output_format format) {
    if (format == chat_output_format::harmony) return std::make_unique<harmony_grammar>();
    return std::make_unique<tag_grammar>();
}

}  // namespace

void chat_output::append(const chat_output& more) {
    reasoning += more.reasoning;
    content += more.content;
    tool_calls.insert(tool_calls.end(), more.tool_calls.begin(), more.tool_calls.end());
}

chat_output_parser::chat_output_parser(chat_output_format format, std::string_view prompt)
    : grammar_(grammar_of(format)) {
    grammar_->begin(prompt);
}

chat_output_parser::chat_output_parser(chat_output_parser&&) noexcept = default;
chat_output_parser& chat_output_parser::operator=(chat_output_parser&&) noexcept = default;
chat_output_parser::~chat_output_parser() = default;

chat_output chat_output_parser::push(std::string_view text) {
    divide(held_, text, *grammar_);
    return std::exchange(grammar_->output, {});
}

chat_output chat_output_parser::finish() {
    held_.clear();
    grammar_->finish();
    return std::exchange(grammar_->output, {});
}

}  // namespace imbrex::engine
