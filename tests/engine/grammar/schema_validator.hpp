// A validator of the supported part of JSON Schema, independent of the grammars, for the tests of structured output.
#pragma once

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>

namespace imbrex::engine::test {

using json = nlohmann::ordered_json;

class schema_validator {
  public:
    // Lenient: without patterns, and without what the rounding of numbers decides.
    enum class strictness { exact, lenient };

    explicit schema_validator(json root, strictness how = strictness::exact)
        : root_(std::move(root)), is_exact_(how == strictness::exact) {}
    bool accepts(const json& value) const { return holds(root_, value); }

  private:
    bool holds(const json& schema, const json& value) const {
        if (schema.is_boolean()) return schema.get<bool>();
        for (const auto& [keyword, given] : schema.items())
            if (!holds(schema, keyword, given, value)) return false;
        return true;
    }

    bool holds(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        const auto any = [&](const json& all) {
            return std::ranges::any_of(all, [&](const json& each) { return holds(each, value); });
        };
        if (keyword == "$ref") return holds(root_.at(json::json_pointer(given.get<std::string>().substr(1))), value);
        if (keyword == "allOf") return std::ranges::all_of(given, [&](const json& each) { return holds(each, value); });
        if (keyword == "anyOf" || keyword == "oneOf") return any(given);
        if (keyword == "const") return value == given;
        if (keyword == "enum") return std::ranges::find(given, value) != given.end();
        if (keyword == "type") {
            const json types = given.is_array() ? given : json::array({given});
            return std::ranges::any_of(types, [&](const json& type) { return is_of_type(value, type); });
        }
        if (value.is_object()) return holds_of_object(schema, keyword, given, value);
        if (value.is_array()) return holds_of_array(schema, keyword, given, value);
        if (value.is_string()) return holds_of_string(keyword, given, value);
        if (value.is_number()) return holds_of_number(keyword, given, value);
        return true;
    }
    static bool is_of_type(const json& value, const json& type) {
        if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
        return type == value.type_name();
    }
    bool holds_of_object(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        if (keyword == "required")
            return std::ranges::all_of(given,
                                       [&](const json& name) { return value.contains(name.get<std::string>()); });
        for (const auto& [name, member] : value.items()) {
            const bool is_property = schema.contains("properties") && schema["properties"].contains(name);
            if (keyword == "properties" && is_property && !holds(given[name], member)) return false;
            if (keyword == "additionalProperties" && !is_property && !holds(given, member)) return false;
        }
        return true;
    }
    bool holds_of_array(const json& schema, const std::string& keyword, const json& given, const json& value) const {
        const std::size_t first = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
        if (keyword == "minItems") return value.size() >= given.get<std::size_t>();
        if (keyword == "maxItems") return value.size() <= given.get<std::size_t>();
        for (std::size_t i = 0; i < value.size(); ++i) {
            if (keyword == "prefixItems" && i < first && !holds(given[i], value[i])) return false;
            if (keyword == "items" && i >= first && !holds(given, value[i])) return false;
        }
        return true;
    }
    bool holds_of_string(const std::string& keyword, const json& given, const json& value) const {
        const std::string text = value;
        const auto length = static_cast<std::size_t>(
            std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }));
        if (keyword == "minLength") return length >= given.get<std::size_t>();
        if (keyword == "maxLength") return length <= given.get<std::size_t>();
        if (keyword == "pattern" && is_exact_) return std::regex_search(text, std::regex(given.get<std::string>()));
        return true;
    }
    bool holds_of_number(const std::string& keyword, const json& given, const json& value) const {
        const double number = value;
        if (keyword == "minimum") return number >= given.get<double>();
        if (keyword == "maximum") return number <= given.get<double>();
        if (keyword == "exclusiveMinimum") return number > given.get<double>() || is_equal(number, given);
        if (keyword == "exclusiveMaximum") return number < given.get<double>() || is_equal(number, given);
        if (keyword == "multipleOf") {
            const double times = number / given.get<double>();
            return std::fabs(times - std::round(times)) < (is_exact_ ? 1e-6 : 1e-6 + 1e-15 * std::fabs(times));
        }
        return true;
    }
    bool is_equal(double number, const json& given) const { return !is_exact_ && number == given.get<double>(); }

    json root_;
    bool is_exact_;
};

}  // namespace imbrex::engine::test
