// Reads the fields of a JSON request. Errors are api_errors with status 400 that name the field, its value and what is
// allowed. A field that is neither read nor ignored on purpose is refused, so that a misspelt one is not silently lost.
// null is the same as absence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/server/api_error.hpp"

namespace imbrex::engine::server {

using json = nlohmann::ordered_json;

// Parses a request body, which must be an object.
json parse_body(std::string_view body);

// Compact JSON. Bytes of a partial character become U+FFFD.
std::string dumped(const json& value);

// A value for an error message, cut to a readable length.
std::string shown(const json& value);

class request_fields {
  public:
    // `path` is before the names of the fields in errors: "tools[0]."
    explicit request_fields(const json& object, std::string path = {});

    // Null if the field is absent.
    const json* find(const char* name);

    bool boolean(const char* name, bool otherwise);
    std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most);
    std::optional<double> number(const char* name, double least, double most);
    std::optional<std::string> text(const char* name);
    std::string required_text(const char* name);
    // One of the allowed texts.
    std::optional<std::string> choice(const char* name, std::initializer_list<std::string_view> allowed);
    // A text or an array of texts.
    std::vector<std::string> texts(const char* name, std::size_t most);
    const json* object(const char* name);
    const json* array(const char* name);

    // These change nothing here.
    void ignore(std::initializer_list<const char*> names);
    // Not supported: an error unless the field is absent, or has the value that changes nothing.
    void refuse(const char* name, const json& harmless, const char* reason);
    // The field is invalid.
    [[noreturn]] void fail(const char* name, const std::string& allowed) const;
    std::string path_of(const char* name) const { return path_ + name; }

    // Throws for a field that nothing has read.
    void refuse_unknown() const;

  private:
    const json& object_;
    std::string path_;
    std::set<std::string, std::less<>> read_;
};

}  // namespace imbrex::engine::server
