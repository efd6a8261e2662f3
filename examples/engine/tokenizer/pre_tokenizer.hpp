// Byte-pair vocabularies cut text into words before they merge anything, each family by a regular expression of its own. The
// expressions are few and well known, so each is written out here as code: no engine for regular expressions is needed, and
// one that is not known is refused rather than guessed.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace imbrex::engine {

enum class split_pattern {
    gpt2,    // GPT-2, GPT-NeoX: words with the space before them; numbers of any length; contractions in lower case
    llama3,  // Llama 3: a word takes any one character before it that is no letter, number or newline; up to 3 digits
    qwen2,   // as Llama 3, but each digit alone
    o200k,   // GPT-4o, GPT-OSS: words are cut where lower case turns to upper; contractions stay with their word
    digits,  // each digit alone, nothing else is cut: a step before another pattern
};

// By the name that GGUF files have for it, and by the regular expression that tokenizer.json has.
std::optional<split_pattern> split_pattern_named(std::string_view name);
std::optional<split_pattern> split_pattern_of_expression(std::string_view expression);

// The words of a text, one after the other, without a gap.
std::vector<std::string_view> split_words(std::string_view text, split_pattern pattern);

}  // namespace imbrex::engine
