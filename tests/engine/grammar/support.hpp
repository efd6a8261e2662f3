// Texts of a constraint, for the tests of structured output.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/schema_validator.hpp"
#include "engine/grammar/structured_output.hpp"
#include "engine/grammar/text_matcher.hpp"
#include "engine/grammar/vocabularies.hpp"

namespace imbrex::engine::test {

// The error message of compiling a schema.
inline std::string schema_error_of(const std::string& schema) {
    try {
        grammar_of_json_schema(schema, json_spacing::compact);
    } catch (const std::exception& failure) {
        return failure.what();
    }
    return "no error";
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

}  // namespace imbrex::engine::test
