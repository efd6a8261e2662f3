#include "engine/grammar/code_points.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

namespace imbrex::engine {

namespace {

constexpr char32_t first_surrogate = 0xd800, last_surrogate = 0xdfff;

std::uint8_t byte_of(char32_t value) {
    return static_cast<std::uint8_t>(value);
}

int length_of(char32_t point) {
    return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

std::array<std::uint8_t, 4> utf8_of(char32_t point) {
    switch (length_of(point)) {
        case 1:
            return {byte_of(point)};
        case 2:
            return {byte_of(0xc0 | point >> 6), byte_of(0x80 | (point & 63))};
        case 3:
            return {byte_of(0xe0 | point >> 12), byte_of(0x80 | (point >> 6 & 63)), byte_of(0x80 | (point & 63))};
        default:
            return {byte_of(0xf0 | point >> 18), byte_of(0x80 | (point >> 12 & 63)), byte_of(0x80 | (point >> 6 & 63)),
                    byte_of(0x80 | (point & 63))};
    }
}

// The encodings of [first, last], which have the same length, as sequences of byte ranges: split until the bytes behind the
// first different one take all values.
void add_sequences(char32_t first, char32_t last, std::vector<expression>& to) {
    const int length = length_of(first);
    for (int i = 1; i < length; ++i) {
        const char32_t low = (char32_t{1} << (6 * i)) - 1;
        if ((first & ~low) == (last & ~low)) continue;
        if ((first & low) != 0) {
            add_sequences(first, first | low, to);
            add_sequences((first | low) + 1, last, to);
            return;
        }
        if ((last & low) != low) {
            add_sequences(first, (last & ~low) - 1, to);
            add_sequences(last & ~low, last, to);
            return;
        }
    }
    const std::array<std::uint8_t, 4> a = utf8_of(first), b = utf8_of(last);
    std::vector<expression> bytes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) bytes.push_back(byte_range(a[i], b[i]));
    to.push_back(concatenation(std::move(bytes)));
}

expression utf8_expression(const code_point_set& points) {
    std::vector<expression> alternatives;
    for (auto [first, last] : points.ranges()) {
        for (const char32_t end : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}, last_code_point}) {
            if (first > end || first > last) continue;
            add_sequences(first, std::min(last, end), alternatives);
            first = std::min(last, end) + 1;
        }
    }
    return choice(std::move(alternatives));
}

const code_point_set& escaped_points() {
    static const code_point_set points({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
    return points;
}

expression hex_digits(std::string_view set) {  // one of these lower-case digits
    std::vector<expression> all;
    for (const char each : set) {
        all.push_back(literal(std::string(1, each)));
        if (each >= 'a') all.push_back(literal(std::string(1, static_cast<char>(each - 'a' + 'A'))));
    }
    return choice(std::move(all));
}

// The escape of a code point of escaped_points().
std::string escape_of(char32_t point) {
    switch (point) {
        case '"':
            return "\\\"";
        case '\\':
            return "\\\\";
        case '\b':
            return "\\b";
        case '\f':
            return "\\f";
        case '\n':
            return "\\n";
        case '\r':
            return "\\r";
        case '\t':
            return "\\t";
        default:
            char text[8];
            std::snprintf(text, sizeof text, "\\u%04x", static_cast<unsigned>(point));
            return text;
    }
}

}  // namespace

code_point_set::code_point_set(std::vector<std::pair<char32_t, char32_t>> ranges) {
    std::ranges::sort(ranges);
    const auto add = [&](char32_t first, char32_t last) {
        if (first > last) return;
        if (!ranges_.empty() && first <= ranges_.back().second + 1) {
            ranges_.back().second = std::max(ranges_.back().second, last);
        } else {
            ranges_.emplace_back(first, last);
        }
    };
    for (const auto& [first, last] : ranges) {
        add(first, std::min<char32_t>(last, first_surrogate - 1));
        add(std::max<char32_t>(first, last_surrogate + 1), std::min(last, last_code_point));
    }
}

bool code_point_set::contains(char32_t point) const {
    return std::ranges::any_of(ranges_, [=](const auto& each) { return each.first <= point && point <= each.second; });
}

code_point_set code_point_set::complement() const {
    std::vector<std::pair<char32_t, char32_t>> others;
    char32_t next = 0;
    for (const auto& [first, last] : ranges_) {
        if (first > next) others.emplace_back(next, first - 1);
        next = last + 1;
    }
    if (next <= last_code_point) others.emplace_back(next, last_code_point);
    return code_point_set(std::move(others));
}

code_point_set code_point_set::united(const code_point_set& other) const {
    std::vector<std::pair<char32_t, char32_t>> all = ranges_;
    all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
    return code_point_set(std::move(all));
}

code_point_set code_point_set::without(const code_point_set& other) const {
    return complement().united(other).complement();
}

expression encoded(const code_point_set& points, text_encoding encoding) {
    if (encoding == text_encoding::utf8) return utf8_expression(points);
    std::vector<expression> alternatives{utf8_expression(points.without(escaped_points()))};
    for (const auto& [first, last] : escaped_points().ranges()) {
        for (char32_t point = first; point <= last; ++point)
            if (points.contains(point)) alternatives.push_back(literal(escape_of(point)));
    }
    return choice(std::move(alternatives));
}

std::string encoded(std::string_view utf8, text_encoding encoding) {
    if (encoding == text_encoding::utf8) return std::string(utf8);
    std::string text;
    for (const char each : utf8) {
        const auto byte = static_cast<std::uint8_t>(each);
        text += byte < 0x20 || each == '"' || each == '\\' ? escape_of(byte) : std::string(1, each);
    }
    return text;
}

namespace {

expression character_of_a_json_string() {
    const expression digit = hex_digits("0123456789abcdef");
    const expression no_surrogate = choice({concatenation({hex_digits("0123456789abcef"), repeated(digit, 3, 3)}),
                                            concatenation({hex_digits("d"), hex_digits("01234567"), digit, digit})});
    const expression pair = concatenation({hex_digits("d"), hex_digits("89ab"), digit, digit, literal("\\u"),
                                           hex_digits("d"), hex_digits("cdef"), digit, digit});
    std::vector<expression> escapes{concatenation({literal("u"), choice({no_surrogate, pair})})};
    for (const char each : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) escapes.push_back(literal(std::string(1, each)));
    return choice(
        {utf8_expression(escaped_points().complement()), concatenation({literal("\\"), choice(std::move(escapes))})});
}

}  // namespace

// As a small automaton, since it may be repeated thousands of times.
expression any_json_character() {
    compile_budget budget;
    return matching(determinised(character_of_a_json_string(), budget));
}

}  // namespace imbrex::engine
