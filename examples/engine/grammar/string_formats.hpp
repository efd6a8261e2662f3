// The "format" of JSON Schema strings, as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace imbrex::engine {

// date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri; nothing for others.
std::optional<std::string> regex_of_format(std::string_view format);

// For error messages.
inline constexpr const char* known_formats = "date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri";

}  // namespace imbrex::engine
