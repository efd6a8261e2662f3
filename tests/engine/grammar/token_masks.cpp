// Token masks: exactly the tokens whose bytes the grammar allows, for random vocabularies, grammars and texts.
#include "engine/grammar/token_masks.hpp"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/regex.hpp"
#include "engine/grammar/support.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::test;

namespace {

grammar grammar_of_regex(const std::string& regex) {
    grammar_builder rules;
    const std::int32_t start = rules.add_rule();
    rules.define(start, expression_of_regex(regex, text_encoding::utf8, regex_extent::whole, "regex"));
    return std::move(rules).finished(start);
}

bool is_set(const std::vector<std::uint32_t>& mask, int token) {
    return (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0;
}

// Tries each token byte by byte.
bool follows(const text_matcher& text, std::string_view bytes) {
    text_matcher next = text;
    return !bytes.empty() && next.push(bytes);
}

// Follows a random text and compares the masks on the way. Returns the tokens that were allowed.
std::size_t compare_masks(const grammar& rules, const token_trie& tokens, std::mt19937& generator, int steps) {
    const token_masks masks(rules, tokens);
    text_matcher text(rules);
    std::size_t all = 0;
    for (int step = 0; step < steps; ++step) {
        std::vector<std::uint32_t> mask(static_cast<std::size_t>(tokens.size() + 31) / 32, 0xffffffffu);
        masks.write(text, mask);
        std::vector<int> allowed;
        std::vector<int> wrong;
        for (int token = 0; token < static_cast<int>(mask.size()) * 32; ++token) {
            const bool wanted = token < tokens.size() && follows(text, tokens.bytes_of(token));
            if (is_set(mask, token) != wanted) wrong.push_back(token);
            if (wanted) allowed.push_back(token);
        }
        CHECK(wrong.empty());
        CHECK(allowed.empty() == text.must_end());
        if (allowed.empty()) text = text_matcher(rules);
        if (allowed.empty()) continue;
        CHECK(text.push(tokens.bytes_of(allowed[generator() % allowed.size()])));
        all += allowed.size();
    }
    return all;
}

const std::vector<std::string> schemas{
    R"({"type": "object"})",
    "true",
    R"({"type": "string", "maxLength": 5})",
    R"({"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 120}, "minItems": 2})",
    R"({"type": "object", "properties": {"name": {"type": "string"}, "id": {"type": ["integer", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", "name", 1, null]}}}, "required": ["id"]})",
    R"({"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a"]}]})",
    R"({"$defs": {"tree": {"type": "object", "properties": {"x": {"type": "boolean"},
        "name": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}}, "$ref": "#/$defs/tree"})",
    R"({"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": {"type": "null"}})",
};

}  // namespace

TEST_CASE("Masks have exactly the tokens that a byte matcher allows") {
    std::mt19937 generator(1);
    for (const std::string& schema : schemas) {
        CAPTURE(schema);
        for (const json_spacing spacing : {json_spacing::flexible, json_spacing::compact}) {
            const grammar rules = grammar_of_json_schema(schema, spacing);
            const token_trie tokens(random_vocabulary(generator, json_pieces(), 700));
            CHECK(compare_masks(rules, tokens, generator, 60) > 0);
        }
    }
    const std::vector<std::string> pieces{"a", "b", "ab", "1", "\xc3", "\xa9", "\xe2\x82", "\xac", "-", " "};
    for (const char* const regex : {"(ab|a)*b{3}", "[^a]{2,9}", "(\\d+-)?[a-b]*", ".{0,40}b", "\\u{0}?b"}) {
        CAPTURE(regex);
        const grammar rules = grammar_of_regex(regex);
        CHECK(compare_masks(rules, token_trie(random_vocabulary(generator, pieces, 500)), generator, 60) > 0);
    }
}

TEST_CASE("Masks near the greatest depth of nesting") {
    const grammar rules = grammar_of_json_schema("true", json_spacing::compact);
    std::vector<std::string> words{"[", "]", "{", "}", "\"", ":", "0", "[[[[", "]]]]", "[[[", "{\"\":[", "0]", "]}]"};
    const token_trie tokens(words);
    const token_masks masks(rules, tokens);
    text_matcher text(rules);
    int depth = 0;
    for (; depth < 1000; ++depth) {
        std::vector<std::uint32_t> mask(1);
        masks.write(text, mask);
        for (int token = 0; token < tokens.size(); ++token)
            CHECK(is_set(mask, token) == follows(text, tokens.bytes_of(token)));
        if (!is_set(mask, 0)) break;
        CHECK(text.push("["));
    }
    CHECK(depth > 50);
    CHECK(depth < 500);
    for (int i = 0; i < depth; ++i) CHECK(text.push("]"));
    CHECK(text.must_end());
}

TEST_CASE("The leading space of a text that begins here") {
    const grammar rules = grammar_of_regex("(a|b c)+");
    const token_trie tokens(std::vector<std::string>{"a", " a", " b", "b", " ", " c", "  a", "", "ab", " b c", "c"});
    const token_masks masks(rules, tokens);
    const text_matcher text(rules);
    std::vector<std::uint32_t> mask(1);
    masks.write(text, mask, true);
    CHECK(mask[0] == 0b01100001111u);
    masks.write(text, mask, false);
    CHECK(mask[0] == 0b00100001001u);
}

TEST_CASE("Tokens of the trie: duplicates, prefixes, special ones") {
    const token_trie tokens(std::vector<std::string>{"b", "ab", "", "a", "ab", "abc", "\xff"},
                            std::vector<std::string>{"", "", "<end>", "", "", "", ""});
    CHECK(tokens.size() == 7);
    CHECK(tokens.max_depth() == 3);
    CHECK(tokens.nodes().size() == 6);
    CHECK(tokens.bytes_of(2).empty());
    CHECK(tokens.bytes_of(7).empty());
    CHECK(tokens.bytes_of(-1).empty());
    CHECK(tokens.name_of(2) == "<end>");
    std::multiset<int> seen;
    for (const token_trie::node& each : tokens.nodes())
        for (const int token : tokens.tokens_at(each)) seen.insert(token);
    CHECK(seen == std::multiset<int>{0, 1, 3, 4, 5, 6});
    CHECK(token_trie(std::vector<std::string>{}).nodes().size() == 1);
}
