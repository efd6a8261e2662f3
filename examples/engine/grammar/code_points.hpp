// Sets of Unicode code points, and the bytes that stand for them in a text: UTF-8, or UTF-8 within a JSON string, where some
// are escaped.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/automaton.hpp"

namespace imbrex::engine {

inline constexpr char32_t last_code_point = 0x10ffff;

// Without surrogates. Ranges are ascending, disjoint and not adjacent.
class code_point_set {
  public:
    code_point_set() = default;
    code_point_set(std::vector<std::pair<char32_t, char32_t>> ranges);
    static code_point_set all() { return code_point_set({{0, last_code_point}}); }

    const std::vector<std::pair<char32_t, char32_t>>& ranges() const { return ranges_; }
    bool empty() const { return ranges_.empty(); }
    bool contains(char32_t point) const;
    code_point_set complement() const;
    code_point_set united(const code_point_set& other) const;
    code_point_set without(const code_point_set& other) const;

  private:
    std::vector<std::pair<char32_t, char32_t>> ranges_;
};

enum class text_encoding {
    utf8,
    json_string,  // '"' and '\' behind a backslash; control characters as \n, \t, ... or \u001f
};

// One code point of the set. Each has exactly one encoding.
expression encoded(const code_point_set& points, text_encoding encoding);
// A text, in the same encoding.
std::string encoded(std::string_view utf8, text_encoding encoding);

// A code point of a JSON string in any of its encodings: also \/, and \u with four digits and pairs of surrogates.
expression any_json_character();

}  // namespace imbrex::engine
