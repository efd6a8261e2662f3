// Vocabularies for the tests of structured output.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/token_trie.hpp"

namespace imbrex::engine::test {

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

}  // namespace imbrex::engine::test
