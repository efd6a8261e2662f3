// Unicode for tokenizers: character classes (for pre-tokenizers) and normalization form C (NFC), which some
// vocabularies require.
#pragma once

#include <string>
#include <string_view>

namespace imbrex::engine {

enum class unicode_class : unsigned char {
    other = 0,
    letter_upper = 1,  // upper and title case
    letter_lower = 2,
    letter_other = 3,  // without case, and modifiers
    mark = 4,
    number = 5,
    space = 6,
};

unicode_class class_of(char32_t value);

inline bool is_letter(unicode_class what) {
    return what == unicode_class::letter_upper || what == unicode_class::letter_lower ||
           what == unicode_class::letter_other;
}

// NFC. Invalid UTF-8 bytes are kept.
std::string nfc(std::string_view text);

}  // namespace imbrex::engine
