// Regular expressions of pre-tokenizers, over code points. The syntax is what tokenizer files use: alternatives, groups
// (?:...) and (?i:...), sets [...], \p{..}, \s, \d, \w and their complements, greedy and possessive quantifiers, (?=...),
// (?!...), $ and \b. A group may be repeated more than once only if its length is fixed. Everything else throws.
//
// Matching backtracks, and its recursion is as deep as the expression, not as the text.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/tokenizer/unicode.hpp"

namespace imbrex::engine {

// A text as code points with their categories. An invalid byte matches negated sets alone.
struct text_point {
    char32_t value;
    general_category category;
    std::size_t place;  // byte offset
};

std::vector<text_point> text_points(std::string_view text);  // with one more, at the end of the text

class regular_expression {
  public:
    explicit regular_expression(std::string_view expression);

    // The end of the match at `start`. The text is points[begin, end).
    std::optional<std::size_t> match(const std::vector<text_point>& points, std::size_t begin, std::size_t end,
                                     std::size_t start) const;

    const std::string& text() const { return text_; }

    // A set of code points.
    struct point_set {
        std::vector<std::pair<char32_t, char32_t>> ranges;
        std::uint32_t categories = 0;
        bool spaces = false, others_than_spaces = false, negated = false;
        std::bitset<128> ascii;  // the same, precomputed

        bool contains(const text_point& point) const { return point.value < 128 ? ascii[point.value] : finds(point); }
        bool finds(const text_point& point) const;
    };

    enum class node_kind { set, repeat, branch, lookahead, line_end, word_boundary, accept };
    struct node {
        node_kind kind = node_kind::accept;
        int next = -1;
        std::vector<int> parts{};  // set: its index; repeat: one set per code point; branch: nodes; lookahead: a node
        std::size_t least = 1, most = 1;
        bool possessive = false, negated = false;
    };

  private:
    struct subject {
        const std::vector<text_point>& points;
        std::size_t begin, end;
    };
    std::optional<std::size_t> run(const subject& text, int index, std::size_t place) const;
    std::optional<std::size_t> run_repeat(const subject& text, const node& step, std::size_t place) const;
    bool at_word_boundary(const subject& text, std::size_t place) const;

    std::string text_;
    std::vector<point_set> sets_;
    std::vector<node> nodes_;
    int first_ = 0;
};

}  // namespace imbrex::engine
