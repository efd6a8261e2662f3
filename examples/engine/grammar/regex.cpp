#include "engine/grammar/regex.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

constexpr int max_nesting = 100;    // of groups
constexpr int max_count = 100'000;  // in {m,n}

const code_point_set digits({{'0', '9'}});
const code_point_set word_characters({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const code_point_set spaces({{'\t', '\r'}, {' ', ' '}});
const code_point_set line_ends({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

class regex_parser {
  public:
    regex_parser(std::string_view regex, text_encoding encoding, std::string_view name)
        : encoding_(encoding), name_(name), text_(regex) {
        for (std::string_view rest = regex; !rest.empty();) {
            const code_point next = first_code_point(rest);
            require(next.valid, name_, ": the expression is not valid UTF-8");
            points_.push_back(next.value);
            rest.remove_prefix(static_cast<std::size_t>(next.length));
        }
    }

    expression parse(regex_extent extent) {
        extent_ = extent;
        expression all = alternatives(true);
        if (at_ < points_.size()) fail("an unmatched )");
        return all;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const {
        require(false, name_, ": ", what, " at position ", at_, " of \"", text_, "\" is not supported");
        std::abort();
    }
    bool ends() const { return at_ == points_.size(); }
    bool is_next(char32_t point) const { return !ends() && points_[at_] == point; }
    bool take(char32_t point) {
        if (!is_next(point)) return false;
        ++at_;
        return true;
    }
    char32_t take_any(const char* what) {
        if (ends()) fail(what);
        return points_[at_++];
    }

    expression alternatives(bool is_outermost) {
        std::vector<expression> all;
        do all.push_back(alternative(is_outermost));
        while (take('|'));
        return all.size() == 1 ? all.front() : choice(std::move(all));
    }

    expression alternative(bool is_outermost) {
        std::vector<expression> parts;
        const bool from_begin = is_outermost && take('^');
        bool to_end = false;
        while (!ends() && !is_next('|') && !is_next(')')) {
            if (is_outermost && is_next('$') && (at_ + 1 == points_.size() || points_[at_ + 1] == '|')) {
                ++at_;
                to_end = true;
                break;
            }
            parts.push_back(quantified(atom()));
        }
        if (is_outermost && extent_ == regex_extent::part) {
            const expression anything = repeated(encoded(code_point_set::all(), encoding_), 0);
            if (!from_begin) parts.insert(parts.begin(), anything);
            if (!to_end) parts.push_back(anything);
        }
        return concatenation(std::move(parts));
    }

    expression quantified(expression part) {
        for (bool is_first = true;; is_first = false) {
            std::optional<std::pair<int, int>> counts;
            if (take('*')) {
                counts = {0, unlimited};
            } else if (take('+')) {
                counts = {1, unlimited};
            } else if (take('?')) {
                counts = {0, 1};
            } else if (is_next('{')) {
                counts = braces();
            }
            if (!counts) return part;
            if (!is_first) fail("a quantifier of a quantifier");
            part = repeated(std::move(part), counts->first, counts->second);
            if (take('?')) continue;  // lazy
            if (is_next('+')) fail("a possessive quantifier");
        }
    }

    std::pair<int, int> braces() {
        ++at_;
        const int least = number();
        int most = least;
        if (take(',')) most = is_next('}') ? unlimited : number();
        if (!take('}')) fail("a { that is no count");
        require(most == unlimited || least <= most, name_, ": the count {", least, ",", most, "} of \"", text_,
                "\" is empty");
        return {least, most};
    }

    int number() {
        int value = 0;
        const std::size_t begin = at_;
        while (!ends() && digits.contains(points_[at_])) {
            value = value * 10 + static_cast<int>(points_[at_++] - '0');
            if (value > max_count) fail("a count above 100000");
        }
        if (at_ == begin) fail("a { that is no count");
        return value;
    }

    expression atom() {
        const char32_t point = take_any("the end");
        switch (point) {
            case '(':
                return group();
            case '[':
                return encoded(point_class(), encoding_);
            case '.':
                return encoded(line_ends.complement(), encoding_);
            case '\\':
                return encoded(escape(false), encoding_);
            case '^':
            case '$':
                --at_;
                fail("an anchor inside the expression");
            case '*':
            case '+':
            case '?':
            case '{':
                --at_;
                fail("a quantifier without a part before it");
            default:
                return encoded(code_point_set({{point, point}}), encoding_);
        }
    }

    expression group() {
        if (++nesting_ > max_nesting) fail("a group in more than 100 others");
        if (take('?')) {
            if (take('<')) {  // (?<name>...)
                if (is_next('=') || is_next('!')) fail("look-behind");
                while (take_any("an unfinished group") != '>') {}
            } else if (!take(':')) {
                fail("look-ahead or another special group");
            }
        }
        expression inner = alternatives(false);
        if (!take(')')) fail("an unfinished group");
        --nesting_;
        return inner;
    }

    code_point_set point_class() {
        const bool negated = take('^');
        code_point_set all;
        while (!take(']')) {
            const code_point_set first = class_member();
            if (!(is_next('-') && at_ + 1 < points_.size() && points_[at_ + 1] != ']')) {
                all = all.united(first);
                continue;
            }
            ++at_;
            const code_point_set last = class_member();
            const auto is_single = [](const code_point_set& set) {
                return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
            };
            if (!is_single(first) || !is_single(last)) fail("a range of classes");
            const char32_t from = first.ranges()[0].first, to = last.ranges()[0].first;
            if (from > to) fail("a range that ends before it begins");
            all = all.united(code_point_set({{from, to}}));
        }
        return negated ? all.complement() : all;
    }

    code_point_set class_member() {
        const char32_t point = take_any("an unfinished [");
        return point == '\\' ? escape(true) : code_point_set({{point, point}});
    }

    code_point_set escape(bool in_class) {
        const char32_t point = take_any("a \\ at the end");
        const auto one = [](char32_t value) { return code_point_set({{value, value}}); };
        switch (point) {
            case 'd':
                return digits;
            case 'D':
                return digits.complement();
            case 'w':
                return word_characters;
            case 'W':
                return word_characters.complement();
            case 's':
                return spaces;
            case 'S':
                return spaces.complement();
            case 'n':
                return one('\n');
            case 'r':
                return one('\r');
            case 't':
                return one('\t');
            case 'f':
                return one('\f');
            case 'v':
                return one('\v');
            case '0':
                return one(0);
            case 'x':
                return one(hexadecimal(2));
            case 'u':
                return one(unicode_escape());
            case 'b':
                if (in_class) return one('\b');
                break;
            default:
                break;
        }
        if (word_characters.contains(point)) fail("\\" + std::string(1, static_cast<char>(point)));
        return one(point);
    }

    char32_t hexadecimal(int count) {
        char32_t value = 0;
        for (int i = 0; i < count; ++i) {
            const char32_t point = take_any("an unfinished escape");
            const char32_t lower = point | 0x20;
            if (digits.contains(point)) {
                value = value * 16 + (point - '0');
            } else if (lower >= 'a' && lower <= 'f') {
                value = value * 16 + (lower - 'a' + 10);
            } else {
                fail("an escape without hexadecimal digits");
            }
        }
        return value;
    }

    char32_t unicode_escape() {
        char32_t value = 0;
        if (take('{')) {
            while (!take('}')) {
                value = value * 16 + hexadecimal(1);
                if (value > last_code_point) fail("a code point above 10ffff");
            }
        } else {
            value = hexadecimal(4);
        }
        if (code_point_set({{value, value}}).empty()) fail("a surrogate");
        return value;
    }

    text_encoding encoding_;
    std::string name_, text_;
    regex_extent extent_ = regex_extent::whole;
    std::vector<char32_t> points_;
    std::size_t at_ = 0;
    int nesting_ = 0;
};

}  // namespace

expression expression_of_regex(std::string_view regex, text_encoding encoding, regex_extent extent,
                               std::string_view name) {
    return regex_parser(regex, encoding, name).parse(extent);
}

}  // namespace imbrex::engine
