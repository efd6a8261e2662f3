// Pre-tokenizers: BPE vocabularies split text into words before merging, each family by its own regular expressions.
// tokenizer.json has the expressions; a GGUF file has a name, and split_rule_named has the expressions of the names that
// llama.cpp's converter writes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/regular_expression.hpp"

namespace imbrex::engine {

namespace split_expressions {

// GPT-2, GPT-NeoX: words with the space before them; numbers of any length; contractions in lower case.
inline constexpr std::string_view gpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Llama 3: a word may include one preceding character that is no letter, number or newline; up to 3 digits.
inline constexpr std::string_view llama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// As Llama 3, but each digit alone.
inline constexpr std::string_view qwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
// GPT-4o, GPT-OSS: splits between lower and upper case; contractions stay with their word.
inline constexpr std::string_view o200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view single_digits = R"(\p{N})";

}  // namespace split_expressions

// What the name of a pre-tokenizer in a GGUF file stands for.
struct split_rule {
    std::vector<std::string_view> expressions;  // applied in order
    bool ignore_merges = false;                 // a word that is a token is not merged
    bool adds_bos = false;                      // unless the file says otherwise
};

std::optional<split_rule> split_rule_named(std::string_view name);

// All known names, for error messages and docs.
std::vector<std::string_view> split_rule_names();

std::vector<regular_expression> compiled(std::span<const std::string_view> expressions);

// The words of a text, contiguous: each expression cuts the words of the one before at the ends of its matches.
std::vector<std::string_view> split_words(std::string_view text, std::span<const regular_expression> expressions);

}  // namespace imbrex::engine
