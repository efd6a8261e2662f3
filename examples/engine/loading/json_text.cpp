#include "engine/loading/json_text.hpp"

#include <imbrex/core/error.hpp>
#include <unordered_set>
#include <vector>

namespace imbrex::engine {

namespace {

constexpr int deepest = 64;
constexpr std::size_t longest_shown = 60;

void refuse_type(const json& value, const char* key, const std::string& name, const char* wanted) {
    require(false, name, ": \"", key, "\" is ", shown(value), "; it must be ", wanted);
}

}  // namespace

json parse_json(std::string_view text, const std::string& name) {
    std::vector<std::unordered_set<std::string>> keys;  // of the open objects
    const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
        require(depth <= deepest, name, ": JSON is nested more than ", deepest, " deep");
        if (event == json::parse_event_t::object_start) {
            keys.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            keys.pop_back();
        } else if (event == json::parse_event_t::key) {
            const bool is_new = keys.back().insert(parsed.get_ref<const std::string&>()).second;
            if (!is_new) require(false, name, ": key ", shown(parsed), " is there twice in one object");
        }
        return true;
    };
    try {
        return json::parse(text.begin(), text.end(), check);
    } catch (const json::exception& failure) {
        // The parser's message begins with its name in brackets and quotes the input, which may hold any bytes.
        std::string reason;
        for (const char letter : std::string(failure.what())) {
            reason += letter >= 32 && letter < 127 ? letter : '?';
        }
        reason = reason.substr(reason.find("] ") + 2).substr(0, 160);
        throw invalid_argument(name + ": is not JSON: " + reason);
    }
}

const json* find_member(const json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

const json& member(const json& object, const char* key, const std::string& name) {
    const json* found = find_member(object, key);
    require(found != nullptr, name, ": \"", key, "\" is missing");
    return *found;
}

std::optional<std::int64_t> int_member(const json& object, const char* key, const std::string& name) {
    const json* found = find_member(object, key);
    if (!found) return {};
    if (!found->is_number_integer() || (found->is_number_unsigned() && found->get<std::uint64_t>() >> 63)) {
        refuse_type(*found, key, name, "a whole number");
    }
    return found->get<std::int64_t>();
}

std::optional<double> double_member(const json& object, const char* key, const std::string& name) {
    const json* found = find_member(object, key);
    if (!found) return {};
    if (!found->is_number()) refuse_type(*found, key, name, "a number");
    return found->get<double>();
}

std::optional<bool> bool_member(const json& object, const char* key, const std::string& name) {
    const json* found = find_member(object, key);
    if (!found) return {};
    if (!found->is_boolean()) refuse_type(*found, key, name, "true or false");
    return found->get<bool>();
}

std::optional<std::string> string_member(const json& object, const char* key, const std::string& name) {
    const json* found = find_member(object, key);
    if (!found) return {};
    if (!found->is_string()) refuse_type(*found, key, name, "a string");
    return found->get<std::string>();
}

std::string shown(const json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "an array";
    std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
    if (text.size() > longest_shown) text = text.substr(0, longest_shown) + "...";
    return text;
}

}  // namespace imbrex::engine
