#include "engine/tokenizer/regular_expression.hpp"

#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

using point_set = regular_expression::point_set;
using node = regular_expression::node;
using node_kind = regular_expression::node_kind;

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
constexpr char32_t invalid_byte = 0x110000;  // outside of every range

std::uint32_t categories_of_words() {
    return *categories_named("L") | *categories_named("M") | *categories_named("Nd") | *categories_named("Pc");
}

// A parsed expression: a tree, which is then linked from its end.
struct tree {
    enum class kind { set, sequence, alternatives, lookahead, line_end, word_boundary };
    kind what = kind::sequence;
    int set = -1;
    std::vector<tree> parts{};
    std::size_t least = 1, most = 1;
    bool possessive = false, negated = false;
};

class parser {
  public:
    parser(std::string_view text, std::vector<point_set>& sets) : text_(text), sets_(sets) {}

    tree parse() {
        tree all = alternatives(false, 0);
        require(at_end(), where(), "a parenthesis is closed that was not opened");
        return all;
    }

  private:
    static constexpr int deepest = 16;
    static constexpr std::size_t most_repetitions = 1024;

    std::string where() const { return str_cat("regular expression ", printable(text_), ", at byte ", place_, ": "); }
    bool at_end() const { return place_ >= text_.size(); }
    bool next_is(std::string_view part) const { return text_.substr(std::min(place_, text_.size())).starts_with(part); }
    bool take(std::string_view part) {
        if (!next_is(part)) return false;
        place_ += part.size();
        return true;
    }
    char32_t take_point() {
        require(!at_end(), where(), "the expression ends too early");
        const code_point next = first_code_point(text_.substr(place_));
        require(next.valid, where(), "the expression is not UTF-8");
        place_ += static_cast<std::size_t>(next.length);
        return next.value;
    }

    tree alternatives(bool any_case, int depth) {
        require(depth < deepest, where(), "groups are nested more than ", deepest, " deep");
        tree all{.what = tree::kind::alternatives};
        do {
            tree one{.what = tree::kind::sequence};
            while (!at_end() && !next_is("|") && !next_is(")")) one.parts.push_back(quantified(any_case, depth));
            all.parts.push_back(std::move(one));
        } while (take("|"));
        return all;
    }

    tree quantified(bool any_case, int depth) {
        tree item = atom(any_case, depth);
        std::size_t least = 1, most = 1;
        const bool is_counted = next_is("{");
        if (take("?")) {
            least = 0;
        } else if (take("*")) {
            least = 0, most = unlimited;
        } else if (take("+")) {
            most = unlimited;
        } else if (is_counted) {
            read_counts(least, most);
        } else {
            return item;
        }
        item.possessive = !is_counted && take("+");
        const bool one_quantifier = !next_is("?") && !next_is("*") && !next_is("+") && !next_is("{");
        require(one_quantifier, where(), "lazy and repeated quantifiers are not supported");
        require(item.what == tree::kind::set || item.what == tree::kind::alternatives, where(),
                "only characters and groups can be repeated");
        item.least = least;
        item.most = most;
        return item;
    }

    std::size_t number() {
        std::size_t value = 0;
        const std::size_t begin = place_;
        while (!at_end() && text_[place_] >= '0' && text_[place_] <= '9' && value <= most_repetitions) {
            value = value * 10 + static_cast<std::size_t>(text_[place_++] - '0');
        }
        require(place_ > begin && value <= most_repetitions, where(), "a repetition must be a number up to ",
                most_repetitions);
        return value;
    }

    void read_counts(std::size_t& least, std::size_t& most) {
        take("{");
        least = most = number();
        if (take(",")) most = next_is("}") ? unlimited : number();
        require(take("}") && least <= most, where(), "{n}, {n,} and {n,m} are allowed");
    }

    tree atom(bool any_case, int depth) {
        if (take("(?:")) return group(any_case, depth);
        if (take("(?i:")) return group(true, depth);
        if (next_is("(?=") || next_is("(?!")) {
            const bool negated = next_is("(?!");
            place_ += 3;
            tree look{.what = tree::kind::lookahead, .negated = negated};
            look.parts.push_back(group(any_case, depth));
            return look;
        }
        require(!next_is("(?"), where(), "of the groups with (?, only (?:, (?i:, (?= and (?! are supported");
        if (take("(")) return group(any_case, depth);
        if (take("$")) return {.what = tree::kind::line_end};
        if (take("\\b")) return {.what = tree::kind::word_boundary};
        require(!next_is("^") && !next_is("*") && !next_is("+") && !next_is("?"), where(),
                printable(text_.substr(place_, 1)), " is not supported here");
        point_set set;
        if (take("[")) {
            read_set(set, any_case);
        } else if (take(".")) {
            set.ranges.emplace_back('\n', '\n');
            set.negated = true;
        } else {
            add_item(set, any_case);
        }
        return made_of(std::move(set));
    }

    tree group(bool any_case, int depth) {
        tree inside = alternatives(any_case, depth + 1);
        require(take(")"), where(), "a parenthesis is not closed");
        return inside;
    }

    tree made_of(point_set set) {
        for (char32_t value = 0; value < 128; ++value) set.ascii[value] = set.finds({value, category_of(value), 0});
        sets_.push_back(std::move(set));
        return {.what = tree::kind::set, .set = static_cast<int>(sets_.size()) - 1};
    }

    void read_set(point_set& set, bool any_case) {
        set.negated = take("^");
        bool is_first = true;
        while (is_first || !next_is("]")) {
            require(!next_is("[") && !next_is("&&"), where(), "sets in sets are not supported");
            const std::optional<char32_t> low = add_item(set, any_case);
            is_first = false;
            if (!low || !next_is("-") || text_.substr(place_).starts_with("-]")) continue;
            take("-");
            const char32_t high = take("\\") ? escaped() : take_point();
            require(*low <= high, where(), "a range ends before it begins");
            set.ranges.emplace_back(*low, high);
        }
        take("]");
    }

    // Adds a character or a class; returns the character.
    std::optional<char32_t> add_item(point_set& set, bool any_case) {
        if (!take("\\")) {
            const char32_t value = take_point();
            add_character(set, value, any_case);
            return value;
        }
        if (next_is("p{") || next_is("P{")) {
            const bool negated = next_is("P{");
            const std::size_t close = text_.find('}', place_);
            require(close != std::string_view::npos, where(), "\\p{ is not closed");
            const std::string_view name = text_.substr(place_ + 2, close - place_ - 2);
            const auto found = categories_named(name);
            require(found.has_value(), where(), "\\p{", std::string(name.substr(0, 40)),
                    "} is not known; general categories such as L and Lu are");
            set.categories |= negated ? ~*found : *found;
            place_ = close + 1;
            return {};
        }
        const std::uint32_t digits = *categories_named("Nd"), words = categories_of_words();
        const auto is_class = [&](std::string_view name) { return take(name); };
        if (is_class("s")) return set.spaces = true, std::nullopt;
        if (is_class("S")) return set.others_than_spaces = true, std::nullopt;
        if (is_class("d")) return set.categories |= digits, std::nullopt;
        if (is_class("D")) return set.categories |= ~digits, std::nullopt;
        if (is_class("w")) return set.categories |= words, std::nullopt;
        if (is_class("W")) return set.categories |= ~words, std::nullopt;
        const char32_t value = escaped();
        add_character(set, value, any_case);
        return value;
    }

    // The character after a backslash.
    char32_t escaped() {
        if (take("n")) return '\n';
        if (take("r")) return '\r';
        if (take("t")) return '\t';
        if (take("f")) return '\f';
        if (take("v")) return '\v';
        const char32_t value = take_point();
        const bool is_word = value < 128 && ((value | 0x20) - U'a' < 26 || value - U'0' < 10);
        require(!is_word, where(), "\\", std::string(1, static_cast<char>(value)), " is not supported");
        return value;
    }

    static void add_character(point_set& set, char32_t value, bool any_case) {
        set.ranges.emplace_back(value, value);
        if (!any_case || value >= 128 || (value | 0x20) - U'a' >= 26) return;
        set.ranges.emplace_back(value ^ 0x20, value ^ 0x20);
        if ((value | 0x20) == 's') set.ranges.emplace_back(0x17f, 0x17f);    // the long s
        if ((value | 0x20) == 'k') set.ranges.emplace_back(0x212a, 0x212a);  // the Kelvin sign
    }

    std::string_view text_;
    std::vector<point_set>& sets_;
    std::size_t place_ = 0;
};

// Links a tree into nodes, each with the node that follows it.
class linker {
  public:
    linker(std::string_view text, std::vector<node>& nodes) : text_(text), nodes_(nodes) {}

    int link(const tree& from, int next) {
        switch (from.what) {
            case tree::kind::set:
                return add({.kind = node_kind::set,
                            .next = next,
                            .parts = {from.set},
                            .least = from.least,
                            .most = from.most,
                            .possessive = from.possessive});
            case tree::kind::sequence:
                for (std::size_t i = from.parts.size(); i-- > 0;) next = link(from.parts[i], next);
                return next;
            case tree::kind::alternatives:
                return link_group(from, next);
            case tree::kind::lookahead:
                return add({.kind = node_kind::lookahead,
                            .next = next,
                            .parts = {link(from.parts[0], add({}))},
                            .negated = from.negated});
            case tree::kind::line_end:
                return add({.kind = node_kind::line_end, .next = next});
            case tree::kind::word_boundary:
                break;
        }
        return add({.kind = node_kind::word_boundary, .next = next});
    }

  private:
    int add(node made) {
        nodes_.push_back(std::move(made));
        return static_cast<int>(nodes_.size()) - 1;
    }

    int link_group(const tree& from, int next) {
        if (from.most > 1) {
            std::vector<int> sets;
            require(from.parts.size() == 1 && !from.possessive && collect(from.parts[0], sets) && !sets.empty(),
                    "regular expression ", printable(text_),
                    ": a group that is repeated must have a fixed length, without alternatives");
            return add({.kind = node_kind::repeat,
                        .next = next,
                        .parts = std::move(sets),
                        .least = from.least,
                        .most = from.most});
        }
        require(!from.possessive, "regular expression ", printable(text_), ": possessive groups are not supported");
        if (from.parts.size() == 1 && from.least == 1) return link(from.parts[0], next);
        node made{.kind = node_kind::branch};
        for (const tree& part : from.parts) made.parts.push_back(link(part, next));
        if (from.least == 0) made.parts.push_back(next);
        return add(std::move(made));
    }

    // The sets of a part of fixed length, one per code point.
    static bool collect(const tree& from, std::vector<int>& sets) {
        if (from.what == tree::kind::sequence) {
            for (const tree& part : from.parts) {
                if (!collect(part, sets)) return false;
            }
            return true;
        }
        if (from.what != tree::kind::set || from.least != from.most) return false;
        sets.insert(sets.end(), from.least, from.set);
        return true;
    }

    std::string_view text_;
    std::vector<node>& nodes_;
};

}  // namespace

std::vector<text_point> text_points(std::string_view text) {
    std::vector<text_point> points;
    points.reserve(text.size() + 1);
    for (std::size_t place = 0; place < text.size();) {
        const code_point next = first_code_point(text.substr(place));
        points.push_back(next.valid ? text_point{next.value, category_of(next.value), place}
                                    : text_point{invalid_byte, general_category::unassigned, place});
        place += static_cast<std::size_t>(next.length);
    }
    points.push_back({invalid_byte, general_category::unassigned, text.size()});
    return points;
}

bool regular_expression::point_set::finds(const text_point& point) const {
    if (point.value == invalid_byte) return negated;
    const auto belongs = [&] {
        if (categories >> static_cast<int>(point.category) & 1) return true;
        if ((spaces || others_than_spaces) && (is_white_space(point.value) ? spaces : others_than_spaces)) return true;
        for (const auto& [low, high] : ranges) {
            if (point.value >= low && point.value <= high) return true;
        }
        return false;
    };
    return belongs() != negated;
}

regular_expression::regular_expression(std::string_view expression) : text_(expression) {
    const tree parsed = parser(text_, sets_).parse();
    nodes_.push_back({});
    first_ = linker(text_, nodes_).link(parsed, 0);
}

std::optional<std::size_t> regular_expression::match(const std::vector<text_point>& points, std::size_t begin,
                                                     std::size_t end, std::size_t start) const {
    return run({points, begin, end}, first_, start);
}

std::optional<std::size_t> regular_expression::run(const subject& text, int index, std::size_t place) const {
    while (true) {
        const node& step = nodes_[static_cast<std::size_t>(index)];
        switch (step.kind) {
            case node_kind::accept:
                return place;
            case node_kind::set:
            case node_kind::repeat:
                if (step.most > 1 || step.least == 0) return run_repeat(text, step, place);
                if (place >= text.end || !sets_[static_cast<std::size_t>(step.parts[0])].contains(text.points[place]))
                    return {};
                ++place;
                break;
            case node_kind::branch:
                for (const int part : step.parts) {
                    if (const auto end = run(text, part, place)) return end;
                }
                return {};
            case node_kind::lookahead:
                if (run(text, step.parts[0], place).has_value() == step.negated) return {};
                break;
            case node_kind::line_end:
                if (place < text.end && text.points[place].value != '\n') return {};
                break;
            case node_kind::word_boundary:
                if (!at_word_boundary(text, place)) return {};
                break;
        }
        index = step.next;
    }
}

// Greedy: as often as possible, then less often until the rest matches.
std::optional<std::size_t> regular_expression::run_repeat(const subject& text, const node& step,
                                                          std::size_t place) const {
    const std::size_t length = step.parts.size();
    const auto fits_at = [&](std::size_t at) {
        if (text.end - at < length) return false;
        for (std::size_t i = 0; i < length; ++i) {
            if (!sets_[static_cast<std::size_t>(step.parts[i])].contains(text.points[at + i])) return false;
        }
        return true;
    };
    std::size_t count = 0;
    while (count < step.most && fits_at(place + count * length)) ++count;
    if (count < step.least) return {};
    if (step.possessive || step.next == 0) return run(text, step.next, place + count * length);
    for (; count + 1 > step.least; --count) {
        if (const auto end = run(text, step.next, place + count * length)) return end;
        if (count == 0) break;
    }
    return {};
}

bool regular_expression::at_word_boundary(const subject& text, std::size_t place) const {
    const std::uint32_t words = categories_of_words();
    const auto is_word = [&](std::size_t at) {
        return text.points[at].value != invalid_byte && (words >> static_cast<int>(text.points[at].category) & 1);
    };
    const bool before = place > text.begin && is_word(place - 1), after = place < text.end && is_word(place);
    return before != after;
}

}  // namespace imbrex::engine
