#include "engine/tokenizer/pre_tokenizer.hpp"

#include <array>
#include <cstddef>
#include <string>

#include "engine/tokenizer/unicode.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

struct character {
    char32_t value;
    unicode_class kind;
    std::size_t place;  // byte offset
};

// A text as code points; past the end it returns one that no pattern matches.
class characters {
  public:
    explicit characters(std::string_view text) {
        for (std::size_t place = 0; place < text.size();) {
            const code_point next = first_code_point(text.substr(place));
            all_.push_back({next.value, next.valid ? class_of(next.value) : unicode_class::other, place});
            place += static_cast<std::size_t>(next.length);
        }
        size_ = all_.size();
        all_.push_back({end_of_text, unicode_class::other, text.size()});
    }
    std::size_t size() const { return size_; }
    std::size_t place(std::size_t i) const { return all_[i].place; }
    char32_t value(std::size_t i) const { return i < size_ ? all_[i].value : end_of_text; }
    bool inside(std::size_t i) const { return i < size_; }
    unicode_class kind(std::size_t i) const { return i < size_ ? all_[i].kind : unicode_class::other; }

    bool letter(std::size_t i) const { return is_letter(kind(i)); }
    bool number(std::size_t i) const { return kind(i) == unicode_class::number; }
    bool space(std::size_t i) const { return kind(i) == unicode_class::space; }
    bool symbol(std::size_t i) const { return inside(i) && !letter(i) && !number(i) && !space(i); }
    bool newline(std::size_t i) const { return value(i) == '\r' || value(i) == '\n'; }
    bool upper_part(std::size_t i) const {  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
        const unicode_class what = kind(i);
        return what == unicode_class::letter_upper || what == unicode_class::letter_other ||
               what == unicode_class::mark;
    }
    bool lower_part(std::size_t i) const {  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
        const unicode_class what = kind(i);
        return what == unicode_class::letter_lower || what == unicode_class::letter_other ||
               what == unicode_class::mark;
    }
    bool before_word(std::size_t i) const {  // [^\r\n\p{L}\p{N}]
        return inside(i) && !newline(i) && !letter(i) && !number(i);
    }

    template <class Test>
    std::size_t skip(std::size_t i, const Test& test) const {
        while (i < size_ && test(i)) ++i;
        return i;
    }

  private:
    static constexpr char32_t end_of_text = 0xffffffff;
    std::vector<character> all_;
    std::size_t size_ = 0;
};

enum class letter_case { exact, any };

// 's 't 're 've 'm 'll 'd at i: returns the end, or i.
std::size_t contraction(const characters& text, std::size_t i, letter_case which) {
    if (text.value(i) != '\'') return i;
    const auto at = [&](std::size_t place) -> char32_t {
        const char32_t value = text.value(place);
        if (which == letter_case::any && value >= 'A' && value <= 'Z') return value + ('a' - 'A');
        if (which == letter_case::any && value == 0x17f) return 's';  // the long s
        return value;
    };
    const char32_t first = at(i + 1), second = at(i + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return i + 2;
    const bool is_pair =
        (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
    return is_pair ? i + 3 : i;
}

// \s+(?!\S)|\s+: white space; the last of several belongs to the next word.
std::size_t white_space(const characters& text, std::size_t i) {
    const std::size_t end = text.skip(i, [&](std::size_t k) { return text.space(k); });
    return text.inside(end) && end - i > 1 ? end - 1 : end;
}

std::size_t gpt2_word(const characters& text, std::size_t i) {
    if (const std::size_t end = contraction(text, i, letter_case::exact); end != i) return end;
    const std::size_t start = text.value(i) == ' ' ? i + 1 : i;
    if (text.letter(start)) return text.skip(start, [&](std::size_t k) { return text.letter(k); });
    if (text.number(start)) return text.skip(start, [&](std::size_t k) { return text.number(k); });
    if (text.symbol(start)) return text.skip(start, [&](std::size_t k) { return text.symbol(k); });
    return white_space(text, i);
}

// The common tail of the newer patterns:
// \p{N}{1,most}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+   (o200k has [\r\n/]* there)
std::size_t number_symbol_or_space(const characters& text, std::size_t i, std::size_t most_digits, bool slash_ends) {
    if (text.number(i)) return text.skip(i, [&](std::size_t k) { return text.number(k) && k - i < most_digits; });
    const std::size_t start = text.value(i) == ' ' ? i + 1 : i;
    if (text.symbol(start)) {
        const std::size_t end = text.skip(start, [&](std::size_t k) { return text.symbol(k); });
        return text.skip(end, [&](std::size_t k) { return text.newline(k) || (slash_ends && text.value(k) == '/'); });
    }
    std::size_t after_newline = i;
    const std::size_t end = text.skip(i, [&](std::size_t k) { return text.space(k); });
    for (std::size_t k = i; k < end; ++k) {
        if (text.newline(k)) after_newline = k + 1;
    }
    return after_newline != i ? after_newline : white_space(text, i);
}

std::size_t llama3_word(const characters& text, std::size_t i, std::size_t most_digits) {
    if (const std::size_t end = contraction(text, i, letter_case::any); end != i) return end;
    const std::size_t start = text.before_word(i) ? i + 1 : i;
    if (text.letter(start)) return text.skip(start, [&](std::size_t k) { return text.letter(k); });
    return number_symbol_or_space(text, i, most_digits, false);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ from i on; i if it does not match. The first part is
// greedy and backtracks until the second matches.
std::size_t mixed_case_word(const characters& text, std::size_t i) {
    const std::size_t turn = text.skip(i, [&](std::size_t k) { return text.upper_part(k); });
    if (text.lower_part(turn)) return text.skip(turn, [&](std::size_t k) { return text.lower_part(k); });
    for (std::size_t k = turn; k > i; --k) {
        if (text.lower_part(k - 1)) return k;
    }
    return i;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]* from i on; i if it does not match.
std::size_t upper_case_word(const characters& text, std::size_t i) {
    const std::size_t turn = text.skip(i, [&](std::size_t k) { return text.upper_part(k); });
    return turn == i ? i : text.skip(turn, [&](std::size_t k) { return text.lower_part(k); });
}

std::size_t o200k_word(const characters& text, std::size_t i) {
    for (const auto word : {mixed_case_word, upper_case_word}) {
        for (const std::size_t start : {text.before_word(i) ? i + 1 : i, i}) {
            if (const std::size_t end = word(text, start); end != start)
                return contraction(text, end, letter_case::any);
        }
    }
    return number_symbol_or_space(text, i, 3, true);
}

std::size_t digit_or_rest(const characters& text, std::size_t i) {
    return text.number(i) ? i + 1 : text.skip(i, [&](std::size_t k) { return !text.number(k); });
}

std::size_t word_end(const characters& text, std::size_t i, split_pattern pattern) {
    switch (pattern) {
        case split_pattern::gpt2:
            return gpt2_word(text, i);
        case split_pattern::llama3:
            return llama3_word(text, i, 3);
        case split_pattern::qwen2:
            return llama3_word(text, i, 1);
        case split_pattern::o200k:
            return o200k_word(text, i);
        case split_pattern::digits:
            break;
    }
    return digit_or_rest(text, i);
}

struct expression_name {
    std::string_view expression;
    split_pattern pattern;
};

constexpr std::array expressions{
    expression_name{R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
                    split_pattern::gpt2},
    expression_name{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                    R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                    split_pattern::llama3},
    expression_name{R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
                    R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
                    split_pattern::qwen2},
    expression_name{R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                    split_pattern::o200k},
};

constexpr std::array names{
    expression_name{"gpt-2", split_pattern::gpt2},       expression_name{"gpt-neox", split_pattern::gpt2},
    expression_name{"llama-bpe", split_pattern::llama3}, expression_name{"llama3", split_pattern::llama3},
    expression_name{"llama-v3", split_pattern::llama3},  expression_name{"qwen2", split_pattern::qwen2},
    expression_name{"gpt-4o", split_pattern::o200k},
};

template <class Table>
std::optional<split_pattern> find_in(const Table& table, std::string_view key) {
    for (const expression_name& entry : table) {
        if (entry.expression == key) return entry.pattern;
    }
    return {};
}

}  // namespace

std::optional<split_pattern> split_pattern_named(std::string_view name) {
    return find_in(names, name);
}

std::optional<split_pattern> split_pattern_of_expression(std::string_view expression) {
    return find_in(expressions, expression);
}

std::vector<std::string_view> split_words(std::string_view text, split_pattern pattern) {
    const characters all(text);
    std::vector<std::string_view> words;
    for (std::size_t start = 0; start < all.size();) {
        const std::size_t end = word_end(all, start, pattern);
        words.push_back(text.substr(all.place(start), all.place(end) - all.place(start)));
        start = end;
    }
    return words;
}

}  // namespace imbrex::engine
