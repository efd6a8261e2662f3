// Fuzz target of structured output. The first line of an input is "schema", "compact" (a schema without white space in its
// texts) or "regex"; the constraint follows, and after a zero byte the choices among the tokens that it allows.
//
// A constraint may be refused. Otherwise the mask of each step has exactly the tokens that the matcher takes, no text comes to
// a dead end, and a text that may end is JSON that an independent validator accepts.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/regex.hpp"
#include "engine/grammar/schema_validator.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/token_masks.hpp"
#include "engine/grammar/vocabularies.hpp"
#include "fuzz/readers.hpp"

namespace imbrex::engine::fuzz {

inline const token_trie& small_vocabulary() {
    static const token_trie tokens = [] {
        std::mt19937 generator(1);
        return token_trie(test::random_vocabulary(generator, test::json_pieces(), 400));
    }();
    return tokens;
}

// One token of sixteen, others in each step, is compared with the matcher.
inline std::vector<int> allowed_tokens(const token_masks& masks, const text_matcher& text, std::size_t step) {
    const token_trie& tokens = small_vocabulary();
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(tokens.size() + 31) / 32);
    masks.write(text, mask);
    // With too many alternatives some are lost, in the mask and in the matcher.
    const bool is_exact = text.configurations().size() < text_matcher::max_configurations / 8;
    std::vector<int> allowed;
    for (int token = 0; token < tokens.size(); ++token) {
        const bool is_set = (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
        if (is_set) allowed.push_back(token);
        const std::string_view bytes = tokens.bytes_of(token);
        if (!is_exact || bytes.empty() || (static_cast<std::size_t>(token) + step) % 16 != 0) continue;
        text_matcher next = text;
        must(next.push(bytes) == is_set);
    }
    return allowed;
}

// A text by these choices; early ends are not taken. Empty if it did not end.
inline std::string chosen_text(const grammar& rules, std::string_view choices) {
    constexpr std::size_t most_tokens = 40;
    const token_masks masks(rules, small_vocabulary());
    text_matcher text(rules);
    std::string made;
    for (std::size_t i = 0; i < most_tokens && !text.must_end(); ++i) {
        const std::vector<int> allowed = allowed_tokens(masks, text, i);
        must(!allowed.empty());
        int chosen = allowed[(i < choices.size() ? static_cast<unsigned char>(choices[i]) : i) % allowed.size()];
        if (i >= choices.size()) {  // to an end, if there is a short one
            if (text.may_end()) return made;
            for (const int token : allowed) {
                const std::string_view bytes = small_vocabulary().bytes_of(token);
                if (bytes == "}" || bytes == "]" || bytes == "\"" || bytes == "0" || bytes == ":") chosen = token;
            }
        }
        must(text.push(small_vocabulary().bytes_of(chosen)));
        made += small_vocabulary().bytes_of(chosen);
    }
    return text.may_end() ? made : "";
}

// The validator does not know all references that the compiler knows.
inline void check_document(std::string_view schema, const std::string& text) {
    if (text.empty()) return;
    const test::json document = test::json::parse(text, nullptr, false);
    must(!document.is_discarded());
    using validator = test::schema_validator;
    try {
        must(validator(test::json::parse(schema), validator::strictness::lenient).accepts(document));
    } catch (const test::json::exception&) {}
}

inline void grammar(std::span<const std::byte> bytes) {
    const std::string_view input = as_text(bytes);
    const std::size_t line = input.find('\n');
    if (line == std::string_view::npos) return;
    const std::string_view kind = input.substr(0, line);
    const std::size_t end = std::min(input.find('\0', line), input.size());
    const std::string_view constraint = input.substr(line + 1, end - line - 1);
    const std::string_view choices = input.substr(std::min(end + 1, input.size()));
    unless_refused([&] {
        if (kind == "regex") {
            grammar_builder rules;
            const std::int32_t start = rules.add_rule();
            rules.define(start, expression_of_regex(constraint, text_encoding::utf8, regex_extent::whole, "regex"));
            must(is_utf8(chosen_text(std::move(rules).finished(start), choices)));
        } else if (kind == "schema" || kind == "compact") {
            const json_spacing spacing = kind == "schema" ? json_spacing::flexible : json_spacing::compact;
            check_document(constraint, chosen_text(grammar_of_json_schema(constraint, spacing), choices));
        }
    });
}

}  // namespace imbrex::engine::fuzz
