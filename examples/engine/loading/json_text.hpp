// JSON as the engine's files use it. The parser is JSON for Modern C++; here it learns to refuse what that one lets pass (a
// key that is there twice, text after the end, deep nesting) and to say where. Only the readers' sources include this header.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace imbrex::engine {

using json = nlohmann::json;

// Parses a whole text. `name` is the file that the sentences of refusal name.
json parse_json(std::string_view text, const std::string& name);

// Members of an object, each checked for its type. Null counts as not there.
const json* find_member(const json& object, const char* key);
const json& member(const json& object, const char* key, const std::string& name);
std::optional<std::int64_t> int_member(const json& object, const char* key, const std::string& name);
std::optional<double> double_member(const json& object, const char* key, const std::string& name);
std::optional<bool> bool_member(const json& object, const char* key, const std::string& name);
std::optional<std::string> string_member(const json& object, const char* key, const std::string& name);

// A piece of JSON for a sentence: short, and always printable.
std::string shown(const json& value);

}  // namespace imbrex::engine
