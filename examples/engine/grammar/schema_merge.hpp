// JSON Schemas that hold together: allOf, and keywords beside $ref or anyOf, become one schema.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace imbrex::engine {

using ordered_json = nlohmann::ordered_json;

// Whether a keyword says nothing about which values are valid.
bool is_annotation(const std::string& keyword);

// Values are valid if they are valid for both. "pattern" may become an array of expressions. Throws for keywords that cannot be
// united; `path` is for error messages.
ordered_json merged_schemas(const ordered_json& a, const ordered_json& b, const std::string& path);

}  // namespace imbrex::engine
