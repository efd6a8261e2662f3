// Pre-tokenizers: BPE vocabularies split text into words before merging, each family by its own regular expression. The
// known expressions are written out as code, so no regex engine is needed; unknown ones throw.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace imbrex::engine {

enum class split_pattern {
    gpt2,    // GPT-2, GPT-NeoX: words with the space before them; numbers of any length; contractions in lower case
    llama3,  // Llama 3: a word may include one preceding character that is no letter, number or newline; up to 3 digits
    qwen2,   // as Llama 3, but each digit alone
    o200k,   // GPT-4o, GPT-OSS: splits between lower and upper case; contractions stay with their word
    digits,  // single digits only: a step before another pattern
};

// By the name in GGUF files, and by the regular expression in tokenizer.json.
std::optional<split_pattern> split_pattern_named(std::string_view name);
std::optional<split_pattern> split_pattern_of_expression(std::string_view expression);

// The words of a text, contiguous.
std::vector<std::string_view> split_words(std::string_view text, split_pattern pattern);

}  // namespace imbrex::engine
