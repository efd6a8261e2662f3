// Vocabularies, texts and a schema validator for the tests of structured output.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/structured_output.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/token_trie.hpp"

namespace imbrex::engine::test {

using json = nlohmann::ordered_json;

// The error message of compiling a schema.
inline std::string schema_error_of(const std::string& schema) {
    try {
        grammar_of_json_schema(schema, json_spacing::compact);
    } catch (const std::exception& failure) {
        return failure.what();
    }
    return "no error";
}

// A vocabulary: a token for each byte, and random tokens that are one to four of the pieces, concatenated.
inline std::vector<std::string> random_vocabulary(std::mt19937& generator, const std::vector<std::string>& pieces,
                                                  int count) {
    std::vector<std::string> tokens{""};
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    while (static_cast<int>(tokens.size()) < count) {
        std::string token;
        for (unsigned i = 1 + generator() % 4; i > 0; --i) token += pieces[generator() % pieces.size()];
        tokens.push_back(std::move(token));
    }
    std::ranges::shuffle(tokens.begin() + 1, tokens.end(), generator);
    return tokens;
}

inline const std::vector<std::string>& json_pieces() {
    static const std::vector<std::string> all{
        "{",    "}",     "[",   "]",    ":",   ",",  "\"",   " ",      "\n",       "  ",       "\\",
        "u",    "00",    "e9",  "d83d", "\\u", "n",  "true", "a",      "name",     "id",       "x",
        "null", "false", "0",   "1",    "25",  "-",  ".",    "e",      "\xc3\xa9", "\xf0\x9f", "\x98\x80",
        "\": ", "\",",   "\"}", "[]",   "{}",  "]}", "tags", "2024-0", "b"};
    return all;
}

inline std::shared_ptr<const token_trie> trie_of(std::vector<std::string> tokens) {
    return std::make_shared<const token_trie>(std::move(tokens));
}
inline std::shared_ptr<const token_trie> bytes_trie() {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    return trie_of(std::move(tokens));
}

// Whether the constraint allows exactly this text, byte by byte.
inline bool allows(const shared_constraint& constraint, std::string_view text) {
    const auto state = constraint->start(false);
    for (const char byte : text) {
        if (state->must_end()) return false;
        std::vector<std::uint32_t> mask(8);
        state->allowed_tokens(mask);
        const auto token = static_cast<std::uint8_t>(byte);
        if ((mask[token / 32] >> (token % 32) & 1u) == 0) return false;
        state->push(token);
    }
    return state->may_end();
}

struct generated {
    std::string text;
    bool complete = false;
};

// A text of random allowed tokens. With `hurry`, tokens are short after the first ones, and an end is taken when possible.
inline generated random_text(const shared_constraint& constraint, const token_trie& tokens, std::mt19937& generator,
                             int max_tokens) {
    const auto state = constraint->start(false);
    generated made;
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(tokens.size() + 31) / 32);
    for (int i = 0; i < max_tokens && !state->must_end(); ++i) {
        if (state->may_end() && generator() % 8 == 0) break;
        state->allowed_tokens(mask);
        std::vector<int> allowed;
        for (int token = 0; token < tokens.size(); ++token)
            if ((mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1u) != 0) allowed.push_back(token);
        REQUIRE(!allowed.empty());
        // Brackets and quotes that close are preferred late, so that texts end.
        std::vector<int> closing;
        for (const int token : allowed)
            if (i > max_tokens / 3 &&
                std::string_view("}]\",0").find(tokens.bytes_of(token)[0]) != std::string_view::npos &&
                tokens.bytes_of(token).size() == 1 && tokens.bytes_of(token) != ",")
                closing.push_back(token);
        const std::vector<int>& from = closing.empty() || generator() % 8 == 0 ? allowed : closing;
        const int token = from[generator() % from.size()];
        made.text += tokens.bytes_of(token);
        state->push(token);
    }
    made.complete = state->may_end();
    return made;
}

// An independent validator of the supported part of JSON Schema.
class schema_validator {
  public:
    explicit schema_validator(json root) : root_(std::move(root)) {}
    bool accepts(const json& value) const { return holds(root_, value); }

  private:
    bool holds(const json& schema, const json& value) const {
        if (schema.is_boolean()) return schema.get<bool>();
        for (const auto& [keyword, given] : schema.items())
            if (!holds(schema, keyword, given, value)) return false;
        return true;
    }

    bool holds(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        const auto any = [&](const json& all) {
            return std::ranges::any_of(all, [&](const json& each) { return holds(each, value); });
        };
        if (keyword == "$ref") return holds(root_.at(json::json_pointer(given.get<std::string>().substr(1))), value);
        if (keyword == "allOf") return std::ranges::all_of(given, [&](const json& each) { return holds(each, value); });
        if (keyword == "anyOf" || keyword == "oneOf") return any(given);
        if (keyword == "const") return value == given;
        if (keyword == "enum") return std::ranges::find(given, value) != given.end();
        if (keyword == "type") {
            const json types = given.is_array() ? given : json::array({given});
            return std::ranges::any_of(types, [&](const json& type) { return is_of_type(value, type); });
        }
        if (value.is_object()) return holds_of_object(schema, keyword, given, value);
        if (value.is_array()) return holds_of_array(schema, keyword, given, value);
        if (value.is_string()) return holds_of_string(keyword, given, value);
        if (value.is_number()) return holds_of_number(keyword, given, value);
        return true;
    }
    static bool is_of_type(const json& value, const json& type) {
        if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
        return type == value.type_name();
    }
    bool holds_of_object(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        if (keyword == "required")
            return std::ranges::all_of(given,
                                       [&](const json& name) { return value.contains(name.get<std::string>()); });
        for (const auto& [name, member] : value.items()) {
            const bool is_property = schema.contains("properties") && schema["properties"].contains(name);
            if (keyword == "properties" && is_property && !holds(given[name], member)) return false;
            if (keyword == "additionalProperties" && !is_property && !holds(given, member)) return false;
        }
        return true;
    }
    bool holds_of_array(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        const std::size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
        if (keyword == "minItems") return value.size() >= given.get<std::size_t>();
        if (keyword == "maxItems") return value.size() <= given.get<std::size_t>();
        for (std::size_t i = 0; i < value.size(); ++i) {
            if (keyword == "prefixItems" && i < first && !holds(given[i], value[i])) return false;
            if (keyword == "items" && i >= first && !holds(given, value[i])) return false;
        }
        return true;
    }
    static bool holds_of_string(const std::string& keyword, const json& given, const json& value) {
        const std::string text = value;
        const auto length = static_cast<std::size_t>(
            std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
        if (keyword == "minLength") return length >= given.get<std::size_t>();
        if (keyword == "maxLength") return length <= given.get<std::size_t>();
        if (keyword == "pattern") return std::regex_search(text, std::regex(given.get<std::string>()));
        return true;
    }
    static bool holds_of_number(const std::string& keyword, const json& given, const json& value) {
        const double number = value;
        if (keyword == "minimum") return number >= given.get<double>();
        if (keyword == "maximum") return number <= given.get<double>();
        if (keyword == "exclusiveMinimum") return number > given.get<double>();
        if (keyword == "exclusiveMaximum") return number < given.get<double>();
        if (keyword == "multipleOf") {
            const double times = number / given.get<double>();
            return std::fabs(times - std::round(times)) < 1e-6;
        }
        return true;
    }

    json root_;
};

}  // namespace imbrex::engine::test
