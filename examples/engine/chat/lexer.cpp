#include "engine/chat/lexer.hpp"

#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

bool is_blank(char letter) {
    return letter == ' ' || (letter >= '\t' && letter <= '\r');
}
bool is_digit(char letter) {
    return letter >= '0' && letter <= '9';
}
bool begins_name(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
}

// With \n as the only line break, and without one at the end.
std::string normalised(std::string_view source) {
    std::string text;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') text += source[i];
        if (source[i] == '\r' && (i + 1 == source.size() || source[i + 1] != '\n')) text += '\n';
    }
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

class lexer {
  public:
    lexer(std::string_view source, const std::string& name) : source_(normalised(source)), name_(name) {}

    std::vector<token> run() {
        while (place_ < source_.size()) {
            const std::size_t tag = next_tag();
            take_text(tag);
            if (tag < source_.size()) take_tag();
        }
        add(token_type::end, "");
        return std::move(tokens_);
    }

  private:
    template <class... Parts>
    void check(bool holds, const Parts&... parts) const {
        if (!holds) require(false, name_, ": line ", line_at(place_), ": ", parts...);
    }
    int line_at(std::size_t place) const {
        return 1 + static_cast<int>(
                       std::count(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    }
    void add(token_type type, std::string text) {
        // Lines are counted forward, not from the beginning for each token.
        while (counted_ < place_) line_ += source_[counted_++] == '\n';
        tokens_.push_back({type, std::move(text), line_});
    }
    bool next_is(std::string_view part) const { return std::string_view(source_).substr(place_).starts_with(part); }

    std::size_t next_tag() const {
        for (std::size_t i = source_.find('{', place_); i != std::string::npos; i = source_.find('{', i + 1)) {
            if (i + 1 < source_.size() && std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos)
                return i;
        }
        return source_.size();
    }

    // The text before a tag, without the white space that the tag takes.
    void take_text(std::size_t tag) {
        std::string_view text = std::string_view(source_).substr(place_, tag - place_);
        const char kind = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
        const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
        if (kind != '\0' && sign == '-') {
            while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
        } else if (kind != '\0' && kind != '{' && sign != '+') {
            const std::size_t line = text.rfind('\n') + 1;
            const bool begins_line = line > 0 || begins_line_;
            if (begins_line && std::ranges::all_of(text.substr(line), is_blank)) text = text.substr(0, line);
        }
        if (!text.empty()) add(token_type::text, std::string(text));
        begins_line_ = tag > place_ ? source_[tag - 1] == '\n' : begins_line_;
        place_ = tag;
    }

    void take_tag() {
        const char kind = source_[place_ + 1];
        if (kind == '#') return take_comment();
        const bool is_print = kind == '{';
        add(is_print ? token_type::print_begin : token_type::block_begin, "");
        const std::size_t begin = tokens_.size();
        place_ += 2;
        if (next_is("-") || next_is("+")) ++place_;
        const std::string_view end = is_print ? "}}" : "%}";
        brackets_.clear();
        while (!at_end(end)) take_token();
        add(is_print ? token_type::print_end : token_type::block_end, "");
        take_end(end, !is_print);
        if (!is_print && tokens_.size() == begin + 2 && tokens_[begin].text == "raw") take_raw(begin - 1);
    }

    bool at_end(std::string_view end) {
        while (place_ < source_.size() && is_blank(source_[place_])) ++place_;
        check(place_ < source_.size(), "a tag is not closed");
        if (!brackets_.empty()) return false;
        const std::string_view rest = std::string_view(source_).substr(place_);
        return rest.starts_with(end) || ((rest[0] == '-' || rest[0] == '+') && rest.substr(1).starts_with(end));
    }

    // The end of a tag and the white space that it takes.
    void take_end(std::string_view end, bool trims) {
        const char sign = next_is("-") ? '-' : next_is("+") ? '+' : '\0';
        place_ += end.size() + (sign != '\0' ? 1 : 0);
        const std::size_t after = place_;
        if (sign == '-') {
            while (place_ < source_.size() && is_blank(source_[place_])) ++place_;
        } else if (trims && sign != '+' && next_is("\n")) {
            ++place_;
        }
        begins_line_ = place_ > after && source_[place_ - 1] == '\n';
    }

    void take_comment() {
        const std::size_t end = source_.find("#}", place_ + 2);
        check(end != std::string::npos, "a comment is not closed");
        const bool has_sign = source_[end - 1] == '-' || source_[end - 1] == '+';
        place_ = has_sign && end - 1 >= place_ + 2 ? end - 1 : end;
        take_end("#}", true);
    }

    // {% raw %}: everything to {% endraw %} is text.
    void take_raw(std::size_t first_token) {
        tokens_.resize(first_token);
        const std::size_t begin = place_;
        for (std::size_t tag = source_.find("{%", begin); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
            std::size_t word = tag + 2;
            if (word < source_.size() && (source_[word] == '-' || source_[word] == '+')) ++word;
            while (word < source_.size() && is_blank(source_[word])) ++word;
            if (!std::string_view(source_).substr(word).starts_with("endraw")) continue;
            take_text(tag);
            place_ = word + 6;
            check(at_end("%}"), "{% endraw %} is not closed");
            return take_end("%}", true);
        }
        check(false, "{% raw %} has no {% endraw %}");
    }

    void take_token() {
        const char letter = source_[place_];
        if (begins_name(letter)) return take_name();
        if (is_digit(letter)) return take_number();
        if (letter == '\'' || letter == '"') return take_string();
        constexpr std::array<std::string_view, 7> pairs{"**", "//", "==", "!=", "<=", ">=", "~"};
        for (const std::string_view pair : pairs) {
            if (next_is(pair)) return take_sign(pair);
        }
        const std::string_view one = std::string_view(source_).substr(place_, 1);
        check(std::string_view("+-*/%()[]{},.:|<>=").find(letter) != std::string_view::npos, printable(one),
              " is not expected");
        if (letter == '(' || letter == '[' || letter == '{') brackets_ += letter;
        if (letter == ')' || letter == ']' || letter == '}') {
            const char open = letter == ')' ? '(' : letter == ']' ? '[' : '{';
            check(!brackets_.empty() && brackets_.back() == open, printable(one), " closes no bracket");
            brackets_.pop_back();
        }
        take_sign(one);
    }

    void take_sign(std::string_view sign) {
        add(token_type::sign, std::string(sign));
        place_ += sign.size();
    }

    void take_name() {
        std::size_t end = place_;
        while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
        add(token_type::name, source_.substr(place_, end - place_));
        place_ = end;
    }

    void take_number() {
        std::string digits;
        const auto take_digits = [&] {
            for (; place_ < source_.size() && (is_digit(source_[place_]) || source_[place_] == '_'); ++place_) {
                if (source_[place_] != '_') digits += source_[place_];
            }
        };
        take_digits();
        bool is_real = false;
        if (next_is(".") && place_ + 1 < source_.size() && is_digit(source_[place_ + 1])) {
            is_real = true;
            digits += source_[place_++];
            take_digits();
        }
        if (next_is("e") || next_is("E")) {
            std::size_t exponent = place_ + 1;
            if (exponent < source_.size() && (source_[exponent] == '-' || source_[exponent] == '+')) ++exponent;
            if (exponent < source_.size() && is_digit(source_[exponent])) {
                is_real = true;
                digits += source_.substr(place_, exponent - place_);
                place_ = exponent;
                take_digits();
            }
        }
        add(is_real ? token_type::real : token_type::integer, digits);
    }

    void take_string() {
        const char quote = source_[place_];
        const std::size_t begin = place_++;
        std::string text;
        while (place_ < source_.size() && source_[place_] != quote) {
            if (source_[place_] == '\\' && place_ + 1 < source_.size()) {
                ++place_;
                take_escape(text);
            } else {
                text += source_[place_++];
            }
        }
        check(place_ < source_.size(), "the string of line ", line_at(begin), " is not closed");
        add(token_type::string, text);
        ++place_;
    }

    void take_escape(std::string& text) {
        constexpr std::string_view letters = "nrtbfva0\\'\"\n", meanings{"\n\r\t\b\f\v\a\0\\'\"", 11};
        const char letter = source_[place_++];
        if (letter == '\n') return;
        const std::size_t found = letters.find(letter);
        if (found != std::string_view::npos) {
            text += meanings[found];
            return;
        }
        const std::size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
        if (count == 0) {  // as in Python, an unknown escape is its two characters
            text += std::string("\\") + letter;
            return;
        }
        char32_t code = 0;
        for (std::size_t i = 0; i < count; ++i, ++place_) {
            const std::size_t digit =
                std::string_view("0123456789abcdef")
                    .find(place_ < source_.size() ? static_cast<char>(source_[place_] | 0x20) : '?');
            check(digit != std::string_view::npos, "\\", std::string(1, letter), " needs ", count,
                  " hexadecimal digits");
            code = code * 16 + static_cast<char32_t>(digit);
        }
        check(code < 0x110000, "an escape is above U+10FFFF");
        append_code_point(text, code);
    }

    std::string source_;
    const std::string& name_;
    std::vector<token> tokens_;
    std::string brackets_;  // those that are open
    std::size_t place_ = 0;
    std::size_t counted_ = 0;  // lines are counted up to here
    int line_ = 1;
    bool begins_line_ = true;  // whether the next text begins a line
};

}  // namespace

std::vector<token> tokens_of(std::string_view source, const std::string& name) {
    return lexer(source, name).run();
}

}  // namespace imbrex::engine::jinja
