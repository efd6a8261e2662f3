#include "engine/server/request_fields.hpp"

#include <algorithm>
#include <cmath>
#include <imbrex/core/error.hpp>

#include "engine/chat/bounded_json.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::server {

json parse_body(std::string_view body) {
    constexpr int deepest = deepest_json;
    constexpr std::size_t most_keys = 4096;      // the search for a key is linear
    std::vector<std::size_t> keys(deepest + 1);  // of the open object at each depth
    const auto check = [&](int depth, json::parse_event_t event, json&) {
        if (depth > deepest) throw api_error(400, str_cat("the body nests deeper than ", deepest, " levels"));
        if (event == json::parse_event_t::object_start) keys[static_cast<std::size_t>(depth)] = 0;
        if (event == json::parse_event_t::key && ++keys[static_cast<std::size_t>(depth) - 1] > most_keys)
            throw api_error(400, str_cat("the body has an object with more than ", most_keys, " fields"));
        return true;
    };
    json value;
    try {
        value = json::parse(body, check);
    } catch (const json::exception& failure) {
        throw api_error(400, str_cat("the body is not JSON: ", printable(failure.what())));
    }
    if (!value.is_object()) throw api_error(400, str_cat("the body is ", shown(value), "; a request is an object"));
    return value;
}

std::string dumped(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string shown(const json& value) {
    constexpr std::size_t longest = 80;
    std::string text = dumped(value);
    if (text.size() <= longest) return text;
    std::size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
    return text.substr(0, end) + "...";
}

request_fields::request_fields(const json& object, std::string path) : object_(object), path_(std::move(path)) {}

const json* request_fields::find(const char* name) {
    read_.insert(name);
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool request_fields::boolean(const char* name, bool otherwise) {
    const json* const value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) fail(name, "true or false is allowed");
    return value->get<bool>();
}

std::optional<std::int64_t> request_fields::integer(const char* name, std::int64_t least, std::int64_t most) {
    const json* const value = find(name);
    if (value == nullptr) return {};
    const std::string allowed = str_cat("an integer from ", least, " to ", most, " is allowed");
    if (!value->is_number()) fail(name, allowed);
    if (value->is_number_float()) {  // 1e3 and 1.0 are integers, too
        const double real = value->get<double>();
        if (!(std::trunc(real) == real && std::fabs(real) < 9e15)) fail(name, allowed);
    }
    if (value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX) fail(name, allowed);
    const auto result = value->get<std::int64_t>();
    if (result < least || result > most) fail(name, allowed);
    return result;
}

std::optional<double> request_fields::number(const char* name, double least, double most) {
    const json* const value = find(name);
    if (value == nullptr) return {};
    const bool is_allowed = value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
    if (!is_allowed) fail(name, str_cat("a number from ", least, " to ", most, " is allowed"));
    return value->get<double>();
}

std::optional<std::string> request_fields::text(const char* name) {
    const json* const value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) fail(name, "a string is allowed");
    return value->get<std::string>();
}

std::string request_fields::required_text(const char* name) {
    if (find(name) == nullptr) throw api_error(400, path_of(name) + " is missing; a string is needed", path_of(name));
    return *text(name);
}

std::optional<std::string> request_fields::choice(const char* name, std::initializer_list<std::string_view> allowed) {
    const json* const value = find(name);
    if (value == nullptr) return {};
    std::string names;
    for (const std::string_view each : allowed) {
        if (value->is_string() && value->get_ref<const std::string&>() == each) return value->get<std::string>();
        names += str_cat(names.empty() ? "\"" : ", \"", std::string(each), "\"");
    }
    fail(name, names + (allowed.size() == 1 ? " is allowed" : " are allowed"));
}

std::vector<std::string> request_fields::texts(const char* name, std::size_t most) {
    const json* const value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    const bool all_texts = value->is_array() && value->size() <= most &&
                           std::ranges::all_of(*value, [](const json& one) { return one.is_string(); });
    if (!all_texts) fail(name, str_cat("a string or an array of at most ", most, " strings is allowed"));
    return value->get<std::vector<std::string>>();
}

const json* request_fields::object(const char* name) {
    const json* const value = find(name);
    if (value != nullptr && !value->is_object()) fail(name, "an object is allowed");
    return value;
}

const json* request_fields::array(const char* name) {
    const json* const value = find(name);
    if (value != nullptr && !value->is_array()) fail(name, "an array is allowed");
    return value;
}

void request_fields::ignore(std::initializer_list<const char*> names) {
    for (const char* const name : names) read_.insert(name);
}

void request_fields::refuse(const char* name, const json& harmless, const char* reason) {
    const json* const value = find(name);
    if (value != nullptr && *value != harmless) fail(name, reason);
}

void request_fields::fail(const char* name, const std::string& allowed) const {
    const auto found = object_.find(name);
    const std::string value = found == object_.end() ? "absent" : shown(*found);
    throw api_error(400, str_cat(path_of(name), ": ", value, "; ", allowed), path_of(name));
}

void request_fields::refuse_unknown() const {
    for (const auto& [name, value] : object_.items()) {
        if (read_.contains(name)) continue;
        const std::string path = path_ + name;
        throw api_error(400, str_cat(printable(path), " is not a field of this request; /openapi.json lists them"),
                        path, "unknown_field");
    }
}

}  // namespace imbrex::engine::server
