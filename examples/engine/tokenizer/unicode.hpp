// Unicode for tokenizers: general categories and white space (for pre-tokenizers), and normalization form C (NFC), which
// some vocabularies require.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace imbrex::engine {

enum class general_category : unsigned char {
    upper_case_letter,    // Lu
    lower_case_letter,    // Ll
    title_case_letter,    // Lt
    modifier_letter,      // Lm
    other_letter,         // Lo
    nonspacing_mark,      // Mn
    spacing_mark,         // Mc
    enclosing_mark,       // Me
    decimal_number,       // Nd
    letter_number,        // Nl
    other_number,         // No
    connector,            // Pc
    dash,                 // Pd
    open_punctuation,     // Ps
    close_punctuation,    // Pe
    initial_quote,        // Pi
    final_quote,          // Pf
    other_punctuation,    // Po
    math_symbol,          // Sm
    currency_symbol,      // Sc
    modifier_symbol,      // Sk
    other_symbol,         // So
    space_separator,      // Zs
    line_separator,       // Zl
    paragraph_separator,  // Zp
    control,              // Cc
    format,               // Cf
    surrogate,            // Cs
    private_use,          // Co
    unassigned,           // Cn
};

general_category category_of(char32_t value);

// The categories of a name such as "L" or "Lu", one bit each; nothing for an unknown name.
std::optional<std::uint32_t> categories_named(std::string_view name);

// The property White_Space.
bool is_white_space(char32_t value);

// NFC. Invalid UTF-8 bytes are kept.
std::string nfc(std::string_view text);

}  // namespace imbrex::engine
