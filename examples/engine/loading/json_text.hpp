// JSON for the model readers. The parser is JSON for Modern C++; this wrapper also rejects duplicate keys, text after
// the end and deep nesting, and names the file in errors. Only the readers include this header.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace imbrex::engine {

using json = nlohmann::json;

// Parses a complete text. `name` is the file name for error messages.
json parse_json(std::string_view text, const std::string& name);

// Members of an object, with type checks. Null counts as missing.
const json* find_member(const json& object, const char* key);
const json& member(const json& object, const char* key, const std::string& name);
std::optional<std::int64_t> int_member(const json& object, const char* key, const std::string& name);
std::optional<double> double_member(const json& object, const char* key, const std::string& name);
std::optional<bool> bool_member(const json& object, const char* key, const std::string& name);
std::optional<std::string> string_member(const json& object, const char* key, const std::string& name);

// JSON for an error message: short and printable.
std::string shown(const json& value);

}  // namespace imbrex::engine
