#include "engine/grammar/schema_merge.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace imbrex::engine {

namespace {

bool is_false(const ordered_json& schema) {
    return schema.is_boolean() && !schema.get<bool>();
}
bool is_true(const ordered_json& schema) {
    return schema.is_boolean() ? schema.get<bool>() : schema.empty();
}

// Both as allOf, which is resolved when it is compiled.
ordered_json both(const ordered_json& a, const ordered_json& b) {
    if (a == b || is_true(b) || is_false(a)) return a;
    if (is_true(a) || is_false(b)) return b;
    return {{"allOf", ordered_json::array({a, b})}};
}

ordered_json as_array(const ordered_json& value) {
    return value.is_array() ? value : ordered_json::array({value});
}

bool has(const ordered_json& array, const ordered_json& value) {
    return std::ranges::find(array, value) != array.end();
}

ordered_json common_types(const ordered_json& a, const ordered_json& b) {
    ordered_json common = ordered_json::array();
    const ordered_json left = as_array(a), right = as_array(b);
    for (const ordered_json& type : left) {
        if (has(right, type) || (type == "integer" && has(right, "number"))) common.push_back(type);
    }
    for (const ordered_json& type : right)
        if (type == "integer" && has(left, "number") && !has(common, type)) common.push_back(type);
    return common;
}

ordered_json common_values(const ordered_json& a, const ordered_json& b) {
    ordered_json common = ordered_json::array();
    for (const ordered_json& value : a)
        if (has(b, value)) common.push_back(value);
    return common;
}

ordered_json united(const ordered_json& a, const ordered_json& b) {
    ordered_json all = a;
    for (const ordered_json& value : b)
        if (!has(all, value)) all.push_back(value);
    return all;
}

// Adds to the properties of `to` those of `from`, under what `to` says of others.
void merge_properties(const ordered_json& a, const ordered_json& b, ordered_json& made) {
    const auto properties_of = [](const ordered_json& schema) {
        return schema.value("properties", ordered_json::object());
    };
    const auto others_of = [](const ordered_json& schema) {
        return schema.value("additionalProperties", ordered_json(true));
    };
    const ordered_json left = properties_of(a), right = properties_of(b);
    ordered_json all = ordered_json::object();
    for (const auto& [name, schema] : left.items())
        all[name] = both(schema, right.contains(name) ? right[name] : others_of(b));
    for (const auto& [name, schema] : right.items())
        if (!left.contains(name)) all[name] = both(schema, others_of(a));
    if (!all.empty()) made["properties"] = std::move(all);
    if (a.contains("additionalProperties") || b.contains("additionalProperties"))
        made["additionalProperties"] = both(others_of(a), others_of(b));
}

// Alternatives of both: each with each.
ordered_json alternatives_of_both(const ordered_json& a, const ordered_json& b, const std::string& path) {
    require(a.size() * b.size() <= 256, path, ": anyOf: together with another anyOf it has ", a.size() * b.size(),
            " alternatives; at most 256 are supported");
    ordered_json all = ordered_json::array();
    for (const ordered_json& left : a)
        for (const ordered_json& right : b) all.push_back(both(left, right));
    return all;
}

constexpr std::array<std::string_view, 5> lower_bounds{"minimum", "exclusiveMinimum", "minLength", "minItems",
                                                       "minProperties"};
constexpr std::array<std::string_view, 5> upper_bounds{"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                                       "maxProperties"};

ordered_json merged_values(const std::string& keyword, const ordered_json& a, const ordered_json& b,
                           const std::string& path) {
    if (a == b || is_annotation(keyword)) return a;
    if (keyword == "type") return common_types(a, b);
    if (keyword == "enum") return common_values(a, b);
    if (keyword == "required") return united(a, b);
    if (keyword == "pattern") return united(as_array(a), as_array(b));
    if (keyword == "items") return both(a, b);
    if (keyword == "allOf") return united(a, b);
    if (keyword == "anyOf") return alternatives_of_both(a, b, path);
    if (std::ranges::find(lower_bounds, keyword) != lower_bounds.end()) return std::max(a, b);
    if (std::ranges::find(upper_bounds, keyword) != upper_bounds.end()) return std::min(a, b);
    require(false, path, ": ", keyword, ": two schemas that hold together have different values, ", a.dump(), " and ",
            b.dump(), "; this is not supported");
    return {};
}

}  // namespace

bool is_annotation(const std::string& keyword) {
    static constexpr std::array<std::string_view, 17> all{
        "title",    "description", "default",       "examples",         "$schema",        "$id",
        "$comment", "deprecated",  "readOnly",      "writeOnly",        "$defs",          "definitions",
        "$anchor",  "example",     "discriminator", "contentMediaType", "contentEncoding"};
    return std::ranges::find(all, keyword) != all.end() || keyword.starts_with("x-");
}

ordered_json merged_schemas(const ordered_json& a, const ordered_json& b, const std::string& path) {
    if (is_false(a) || is_false(b)) return false;
    if (is_true(a)) return b;
    if (is_true(b)) return a;
    ordered_json made = a;
    for (const auto& [keyword, value] : b.items()) {
        if (keyword == "properties" || keyword == "additionalProperties") continue;
        made[keyword] = a.contains(keyword) ? merged_values(keyword, a[keyword], value, path) : value;
    }
    merge_properties(a, b, made);
    return made;
}

}  // namespace imbrex::engine
