// Regular expressions of JSON Schema patterns and of constrain_to_regex: ECMAScript's syntax as far as it is regular, over
// code points.
//
//     literals  .  [a-z]  [^...]  \d \w \s \D \W \S  \n \r \t \f \v \0  \xHH  \uHHHH  \u{H...}  (...)  (?:...)  |
//     * + ? {m} {m,} {m,n}, each also lazy (the same texts)  ^ and $ at the ends of the expression or of its alternatives
//
// \d, \w and \s are those of ASCII, as in ECMAScript but for Unicode spaces. Look-around, back references, \b, \p{...} and
// possessive quantifiers throw, with the position.
#pragma once

#include <string_view>

#include "engine/grammar/automaton.hpp"
#include "engine/grammar/code_points.hpp"

namespace imbrex::engine {

enum class regex_extent {
    whole,  // the text matches
    part,   // a part of the text matches, unless ^ and $ say otherwise
};

// `name` is for error messages.
expression expression_of_regex(std::string_view regex, text_encoding encoding, regex_extent extent,
                               std::string_view name);

}  // namespace imbrex::engine
