// JSON Schema (draft 2020-12, the part of docs/structured_output.md) as a grammar of JSON texts.
//
// Members of objects come in the order of "properties", optional ones may be missing. What is not supported throws
// imbrex::error with its path and keyword: "#/properties/age: multipleOf: 0.3; ...".
#pragma once

#include <string_view>

#include "engine/grammar/grammar.hpp"
#include "engine/grammar/structured_output.hpp"

namespace imbrex::engine {

// As a rule of a larger grammar.
std::int32_t add_json_schema(grammar_builder& rules, std::string_view schema, json_spacing spacing);

grammar grammar_of_json_schema(std::string_view schema, json_spacing spacing);

}  // namespace imbrex::engine
