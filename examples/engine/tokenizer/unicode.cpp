#include "engine/tokenizer/unicode.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer/unicode_categories.hpp"
#include "engine/tokenizer/unicode_composition.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine {

namespace {

// The value (low bits) of the last boundary at or before a code point.
std::uint32_t property_of(std::span<const std::uint32_t> boundaries, char32_t value, int bits) {
    const std::uint32_t all_low = (1u << bits) - 1;
    const auto after = std::ranges::upper_bound(boundaries, static_cast<std::uint32_t>(value) << bits | all_low);
    return *(after - 1) & all_low;
}

std::uint32_t combining_class(char32_t value) {
    return value < 0x300 ? 0 : property_of(combining_boundaries, value, 8);
}

// Hangul syllables compose by a rule from leading consonant, vowel and trailing consonant.
constexpr char32_t syllables = 0xac00, leads = 0x1100, vowels = 0x1161, trails = 0x11a7;
constexpr char32_t lead_count = 19, vowel_count = 21, trail_count = 28;
constexpr char32_t syllable_count = lead_count * vowel_count * trail_count;

struct parts {
    char32_t first;
    char32_t second;
};

const std::unordered_map<char32_t, parts>& decomposition_table() {
    static const auto table = [] {
        std::unordered_map<char32_t, parts> result;
        for (std::size_t i = 0; i < std::size(decompositions); i += 3) {
            result[decompositions[i] >> 1] = {decompositions[i + 1], decompositions[i + 2]};
        }
        return result;
    }();
    return table;
}

const std::unordered_map<std::uint64_t, char32_t>& composition_table() {
    static const auto table = [] {
        std::unordered_map<std::uint64_t, char32_t> result;
        for (std::size_t i = 0; i < std::size(decompositions); i += 3) {
            const std::uint64_t pair = std::uint64_t(decompositions[i + 1]) << 32 | decompositions[i + 2];
            if (decompositions[i] & 1) result[pair] = decompositions[i] >> 1;
        }
        return result;
    }();
    return table;
}

void decompose(std::vector<char32_t>& result, char32_t value) {
    if (value >= syllables && value < syllables + syllable_count) {
        const char32_t index = value - syllables;
        result.push_back(leads + index / (vowel_count * trail_count));
        result.push_back(vowels + index % (vowel_count * trail_count) / trail_count);
        if (index % trail_count != 0) result.push_back(trails + index % trail_count);
        return;
    }
    const auto found = value < 0xc0 ? decomposition_table().end() : decomposition_table().find(value);
    if (found == decomposition_table().end()) {
        result.push_back(value);
        return;
    }
    decompose(result, found->second.first);
    if (found->second.second != 0) decompose(result, found->second.second);
}

// The composition of two code points, or 0.
char32_t composition(char32_t first, char32_t second) {
    if (first >= leads && first < leads + lead_count && second >= vowels && second < vowels + vowel_count) {
        return syllables + ((first - leads) * vowel_count + (second - vowels)) * trail_count;
    }
    if (first >= syllables && first < syllables + syllable_count && (first - syllables) % trail_count == 0 &&
        second > trails && second < trails + trail_count) {
        return first + (second - trails);
    }
    const auto found = composition_table().find(std::uint64_t(first) << 32 | second);
    return found == composition_table().end() ? 0 : found->second;
}

// Sorts consecutive marks by combining class.
void reorder(std::vector<char32_t>& values) {
    for (auto first = values.begin(); first != values.end();) {
        if (combining_class(*first) == 0) {
            ++first;
            continue;
        }
        const auto last = std::find_if(first, values.end(), [](char32_t value) { return combining_class(value) == 0; });
        std::stable_sort(first, last, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
        first = last;
    }
}

// Composes each mark with its starter unless a mark in between blocks it.
void compose(std::vector<char32_t>& values) {
    std::size_t end = 0, starter = 0;
    bool has_starter = false;
    std::uint32_t before = 0;  // combining class of the last mark kept after the starter; 0: none
    for (const char32_t value : values) {
        const std::uint32_t here = combining_class(value);
        const bool is_next = has_starter && starter + 1 == end;
        if (has_starter && (is_next || (before < here && before != 0))) {
            if (const char32_t joined = composition(values[starter], value)) {
                values[starter] = joined;
                continue;
            }
        }
        if (here == 0) {
            starter = end;
            has_starter = true;
        }
        before = here;
        values[end++] = value;
    }
    values.resize(end);
}

bool may_change(char32_t value) {
    return value >= 0x300;  // lower code points compose only with marks from here on
}

// Composes the code points up to the next invalid byte.
void append_composed(std::string& result, std::vector<char32_t>& values) {
    std::vector<char32_t> parts;
    for (const char32_t value : values) decompose(parts, value);
    reorder(parts);
    compose(parts);
    for (const char32_t value : parts) append_code_point(result, value);
    values.clear();
}

}  // namespace

general_category category_of(char32_t value) {
    return static_cast<general_category>(property_of(category_boundaries, value, 5));
}

std::optional<std::uint32_t> categories_named(std::string_view name) {
    constexpr std::string_view all = "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn";
    if (name.empty() || name.size() > 2) return {};
    std::uint32_t found = 0;
    for (std::size_t i = 0; i < all.size(); i += 2) {
        if (all.substr(i, 2).starts_with(name)) found |= 1u << i / 2;
    }
    if (found == 0) return {};
    return found;
}

bool is_white_space(char32_t value) {
    if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
    return value == 0x85 || value == 0xa0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200a) ||
           value == 0x2028 || value == 0x2029 || value == 0x202f || value == 0x205f || value == 0x3000;
}

std::string nfc(std::string_view text) {
    std::string result;
    std::vector<char32_t> values;
    bool changes = false;
    for (std::string_view rest = text; !rest.empty();) {
        const code_point next = first_code_point(rest);
        changes = changes || (next.valid && may_change(next.value));
        rest.remove_prefix(static_cast<std::size_t>(next.length));
    }
    if (!changes) return std::string(text);
    while (!text.empty()) {
        const code_point next = first_code_point(text);
        if (next.valid) {
            values.push_back(next.value);
        } else {
            append_composed(result, values);
            result += text[0];
        }
        text.remove_prefix(static_cast<std::size_t>(next.length));
    }
    append_composed(result, values);
    return result;
}

}  // namespace imbrex::engine
