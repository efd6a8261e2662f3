#include "engine/grammar/json_schema.hpp"

#include <imbrex/core/error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_numbers.hpp"
#include "engine/grammar/json_values.hpp"
#include "engine/grammar/regex.hpp"
#include "engine/grammar/schema_merge.hpp"
#include "engine/grammar/string_formats.hpp"

namespace imbrex::engine {

namespace {

constexpr std::size_t max_schema_bytes = std::size_t{1} << 20;
constexpr std::size_t max_rules = 20'000;
constexpr std::size_t max_compiled_bytes = std::size_t{64} << 20;  // of schemas as texts
constexpr int max_nesting = 64;  // of a schema, and of $ref and allOf within each other

struct type_keywords {
    const char* type;
    std::vector<std::string> keywords;
};
const std::array<type_keywords, 7> known_types{{
    {"object", {"properties", "required", "additionalProperties"}},
    {"array", {"items", "prefixItems", "minItems", "maxItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
    {"boolean", {}},
    {"null", {}},
}};

ordered_json parsed(std::string_view text) {
    require(text.size() <= max_schema_bytes, "#: the schema has ", text.size(), " bytes; at most ", max_schema_bytes,
            " are supported");
    const auto limit_depth = [](int depth, ordered_json::parse_event_t, ordered_json&) {
        require(depth <= 2 * max_nesting, "#: the schema is nested more than ", 2 * max_nesting, " levels deep");
        return true;
    };
    try {
        return ordered_json::parse(text, limit_depth);
    } catch (const ordered_json::exception& failure) {
        require(false, "#: the schema is not JSON: ", failure.what());
    }
    return {};
}

// A step of a JSON pointer.
std::string escaped_step(const std::string& name) {
    std::string step;
    for (const char each : name) step += each == '~' ? "~0" : each == '/' ? "~1" : std::string(1, each);
    return step;
}

std::string without_percent_escapes(const std::string& text) {
    std::string plain;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned value = 0;
        const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                               std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                               std::isxdigit(static_cast<unsigned char>(text[i + 2]));
        if (is_escape) value = static_cast<unsigned>(std::stoul(text.substr(i + 1, 2), nullptr, 16));
        plain += is_escape ? static_cast<char>(value) : text[i];
        if (is_escape) i += 2;
    }
    return plain;
}

class schema_compiler {
  public:
    schema_compiler(const ordered_json& root, grammar_builder& rules, json_spacing spacing)
        : root_(root), rules_(rules), values_(rules, spacing) {}

    std::int32_t compile() {
        const std::int32_t start = rules_.add_rule("#");
        rules_.define(start, value_of(root_, "#"));
        for (; !pending_.empty(); pending_.pop_front()) {
            const pending_rule& next = pending_.front();
            rules_.define(next.rule, resolved(next.schema, next.path, 0));
        }
        return start;
    }

  private:
    struct pending_rule {
        std::int32_t rule;
        ordered_json schema;
        std::string path;
    };

    // A rule for each different schema, defined later: a schema that contains itself refers to its rule.
    expression value_of(const ordered_json& schema, const std::string& path) {
        if (schema.is_boolean()) return schema.get<bool>() ? values_.any_value() : nothing();
        require(schema.is_object(), path, ": ", shown(schema), "; a schema must be an object, true or false");
        std::string text = schema.dump();
        compiled_bytes_ += text.size();
        require(
            compiled_bytes_ <= max_compiled_bytes && rule_of_schema_.size() < max_rules, path,
            ": the schema has too many different parts; schemas that refer to each other within allOf may be endless");
        const auto [found, is_new] = rule_of_schema_.try_emplace(std::move(text), -1);
        if (is_new) {
            found->second = rules_.add_rule(path);
            pending_.push_back({found->second, schema, path});
        }
        return call(found->second);
    }

    // $ref, allOf, anyOf and oneOf, then values.
    expression resolved(const ordered_json& schema, const std::string& path, int nesting) {
        require(nesting <= max_nesting, path, ": $ref and allOf are nested more than ", max_nesting, " levels deep");
        if (schema.is_boolean()) return value_of(schema, path);
        if (schema.contains("$ref")) {
            ordered_json others = schema;
            others.erase("$ref");
            const std::string target = text_of(schema["$ref"], path, "$ref");
            const ordered_json& referred = at_pointer(target, path);
            if (std::ranges::all_of(others.items(), [](const auto& each) { return is_annotation(each.key()); }))
                return value_of(referred, target);
            return resolved(merged_schemas(referred, others, path), path, nesting + 1);
        }
        if (schema.contains("allOf")) {
            ordered_json all = schema;
            all.erase("allOf");
            const ordered_json& parts = schema["allOf"];
            require(parts.is_array() && !parts.empty(), path, ": allOf: ", shown(parts),
                    "; it must be an array of schemas");
            for (const ordered_json& part : parts)
                all = merged_schemas(all, without_reference(part, path, nesting), path);
            return resolved(all, path, nesting + 1);
        }
        for (const char* const keyword : {"anyOf", "oneOf"})
            if (schema.contains(keyword)) return alternatives_of(schema, keyword, path, nesting);
        return values_of(schema, path);
    }

    // For a part of allOf: what it refers to, since schemas are united by their keywords. oneOf is anyOf here.
    ordered_json without_reference(const ordered_json& part, const std::string& path, int nesting) {
        require(nesting <= max_nesting, path, ": allOf: schemas that refer to each other are nested more than ",
                max_nesting, " levels deep");
        require(part.is_object() || part.is_boolean(), path, ": allOf: ", shown(part), "; a schema must be an object");
        ordered_json plain = part;
        if (part.is_object() && part.contains("$ref")) {
            plain.erase("$ref");
            const ordered_json& referred = at_pointer(text_of(part["$ref"], path, "$ref"), path);
            plain = merged_schemas(without_reference(referred, path, nesting + 1), plain, path);
        }
        if (plain.is_object() && plain.contains("oneOf") && !plain.contains("anyOf")) {
            plain["anyOf"] = plain["oneOf"];
            plain.erase("oneOf");
        }
        return plain;
    }

    expression alternatives_of(const ordered_json& schema, const std::string& keyword, const std::string& path,
                               int nesting) {
        ordered_json others = schema;
        others.erase(keyword);
        const ordered_json& parts = schema[keyword];
        require(parts.is_array() && !parts.empty(), path, ": ", keyword, ": ", shown(parts),
                "; it must be an array of schemas");
        const bool alone =
            std::ranges::all_of(others.items(), [](const auto& each) { return is_annotation(each.key()); });
        std::vector<expression> all;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const std::string part = path + "/" + keyword + "/" + std::to_string(i);
            all.push_back(alone ? value_of(parts[i], part)
                                : resolved(merged_schemas(others, without_reference(parts[i], part, nesting), part),
                                           part, nesting + 1));
        }
        return choice(std::move(all));
    }

    expression values_of(const ordered_json& schema, const std::string& path) {
        require_known_keywords(schema, path);
        if (schema.contains("const") && schema.contains("enum"))
            require(false, path, ": const: beside enum it is not supported");
        if (schema.contains("const")) return listed_values({schema["const"]}, schema, path, "const");
        if (schema.contains("enum")) {
            const ordered_json& all = schema["enum"];
            require(all.is_array(), path, ": enum: ", shown(all), "; it must be an array");
            return listed_values({all.begin(), all.end()}, schema, path, "enum");
        }
        std::vector<expression> all;
        for (const std::string& type : types_of(schema, path)) all.push_back(value_of_type(type, schema, path));
        return choice(std::move(all));
    }

    void require_known_keywords(const ordered_json& schema, const std::string& path) const {
        for (const auto& [keyword, value] : schema.items()) {
            const bool is_known =
                keyword == "type" || keyword == "enum" || keyword == "const" || is_annotation(keyword) ||
                std::ranges::any_of(known_types,
                                    [&name = keyword](const type_keywords& each) { return has(each.keywords, name); });
            require(is_known, path, ": ", keyword, ": this keyword is not supported");
        }
    }
    static bool has(const std::vector<std::string>& all, const std::string& one) {
        return std::ranges::find(all, one) != all.end();
    }

    // Without "type": those that the keywords are about, or all.
    std::vector<std::string> types_of(const ordered_json& schema, const std::string& path) const {
        std::vector<std::string> types;
        if (schema.contains("type")) {
            const ordered_json& given = schema["type"];
            for (const ordered_json& each : given.is_array() ? given : ordered_json::array({given})) {
                const bool is_known =
                    each.is_string() &&
                    std::ranges::any_of(known_types, [&](const type_keywords& known) { return each == known.type; });
                require(is_known, path, ": type: ", shown(each),
                        "; it must be object, array, string, integer, number, boolean or null");
                types.push_back(each);
            }
            return types;
        }
        for (const type_keywords& each : known_types) {
            const bool is_meant =
                each.type != std::string("integer") &&
                std::ranges::any_of(each.keywords, [&](const std::string& one) { return schema.contains(one); });
            if (is_meant) types.emplace_back(each.type);
        }
        if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
        return types;
    }

    expression value_of_type(const std::string& type, const ordered_json& schema, const std::string& path) {
        if (type == "object") return object_of(schema, path);
        if (type == "array") return array_of(schema, path);
        if (type == "string") return string_of(schema, path);
        if (type == "integer" || type == "number") return number_of(schema, path, type == "integer");
        if (type == "boolean") return any_of({"true", "false"});
        return literal("null");
    }

    // enum and const: those of the right type. Keywords about values of other types do not matter.
    expression listed_values(const std::vector<ordered_json>& all, const ordered_json& schema, const std::string& path,
                             const char* keyword) {
        std::vector<std::string> types;
        if (schema.contains("type")) types = types_of(schema, path);
        std::vector<std::string> texts;
        for (const ordered_json& value : all) {
            if (!types.empty() && !is_of_type(value, types)) continue;
            texts.push_back(value.dump());
            for (const type_keywords& each : known_types) {
                if (each.type != std::string(value.type_name())) continue;
                for (const std::string& other : each.keywords)
                    require(!schema.contains(other), path, ": ", other, ": beside ", keyword, " it is not supported");
            }
        }
        return any_of(std::move(texts));
    }
    static bool is_of_type(const ordered_json& value, const std::vector<std::string>& types) {
        const std::string name = value.type_name();
        return has(types, name) || (name == "number" && value.is_number_integer() && has(types, "integer"));
    }

    expression object_of(const ordered_json& schema, const std::string& path) {
        const ordered_json properties = schema.value("properties", ordered_json::object());
        require(properties.is_object(), path, ": properties: ", shown(properties), "; it must be an object");
        std::vector<std::string> required;
        for (const ordered_json& name : schema.value("required", ordered_json::array()))
            required.push_back(text_of(name, path, "required"));
        // Closed unless it says otherwise or says nothing of its members.
        const ordered_json others = schema.value("additionalProperties", ordered_json(properties.empty()));
        std::vector<json_values::member> members;
        std::vector<std::string> names;
        const auto add = [&](const std::string& name, const ordered_json& value, const std::string& place) {
            names.push_back(name);
            if (value == false && !has(required, name)) return;
            members.push_back({json_values::quoted(name), value_of(value, place), has(required, name)});
        };
        for (const auto& [name, value] : properties.items())
            add(name, value, path + "/properties/" + escaped_step(name));
        const std::string place = path + "/additionalProperties";
        for (const std::string& name : required) {
            if (has(names, name)) continue;
            require(others != false, path, ": required: \"", name, "\" is no property, and there must be no others");
            add(name, others, place);
        }
        std::optional<json_values::member> more;
        if (others != false) more = json_values::member{values_.other_name(names), value_of(others, place), false};
        return values_.object(std::move(members), std::move(more));
    }

    expression array_of(const ordered_json& schema, const std::string& path) {
        json_values::element_list elements{.first = {}, .others = {}};
        elements.least = count_of(schema, "minItems", path).value_or(0);
        elements.most = count_of(schema, "maxItems", path).value_or(unlimited);
        require_order(elements.least, elements.most, path, "minItems", "maxItems");
        const ordered_json first = schema.value("prefixItems", ordered_json::array());
        require(first.is_array(), path, ": prefixItems: ", shown(first), "; it must be an array of schemas");
        for (std::size_t i = 0; i < first.size(); ++i)
            elements.first.push_back(value_of(first[i], path + "/prefixItems/" + std::to_string(i)));
        const ordered_json others = schema.value("items", ordered_json(true));
        require(!others.is_array(), path,
                ": items: an array of schemas is not supported; prefixItems is its present name");
        if (others != false) elements.others = value_of(others, path + "/items");
        require(elements.others || elements.least <= static_cast<int>(first.size()), path,
                ": minItems: ", elements.least, "; there are at most ", first.size(), " elements");
        return values_.array(std::move(elements));
    }

    expression string_of(const ordered_json& schema, const std::string& path) {
        const int least = count_of(schema, "minLength", path).value_or(0);
        const int most = count_of(schema, "maxLength", path).value_or(unlimited);
        require_order(least, most, path, "minLength", "maxLength");
        std::vector<expression> all;
        if (schema.contains("format")) {
            const std::string format = text_of(schema["format"], path, "format");
            const std::optional<std::string> regex = regex_of_format(format);
            require(regex.has_value(), path, ": format: \"", format, "\"; known are ", known_formats);
            all.push_back(regex_content(*regex, regex_extent::whole, path + ": format"));
        }
        if (schema.contains("pattern")) {
            const ordered_json& given = schema["pattern"];
            for (const ordered_json& each : given.is_array() ? given : ordered_json::array({given}))
                all.push_back(regex_content(text_of(each, path, "pattern"), regex_extent::part, path + ": pattern"));
        }
        const bool has_length = least > 0 || most != unlimited;
        if (all.empty() && !has_length) return values_.any_string();
        if (has_length) all.push_back(repeated(any_json_character(), least, most));
        expression content = all.front();
        if (all.size() > 1) {
            dfa common = determinised(all.front(), rules_.budget());
            for (std::size_t i = 1; i < all.size(); ++i)
                common = intersection(common, determinised(all[i], rules_.budget()), rules_.budget());
            content = matching(std::move(common));
        }
        return concatenation({literal("\""), std::move(content), literal("\"")});
    }
    static expression regex_content(const std::string& regex, regex_extent extent, const std::string& name) {
        return expression_of_regex(regex, text_encoding::json_string, extent, name);
    }

    expression number_of(const ordered_json& schema, const std::string& path, bool is_integer) {
        number_form form{.is_integer = is_integer};
        form.least =
            tighter(bound_of(schema, "minimum", false, path), bound_of(schema, "exclusiveMinimum", true, path), 1);
        form.most =
            tighter(bound_of(schema, "maximum", false, path), bound_of(schema, "exclusiveMaximum", true, path), -1);
        if (schema.contains("multipleOf")) set_multiple(form, schema["multipleOf"], path);
        return json_number(form, rules_.budget());
    }

    // Whole numbers, and 0.1, 0.01, ...
    static void set_multiple(number_form& form, const ordered_json& given, const std::string& path) {
        const double value = given.is_number() ? given.get<double>() : 0;
        const double digits = std::round(-std::log10(value));
        if (value >= 1 && value <= max_multiple && value == std::floor(value)) {
            form.is_integer = true;
            form.multiple_of = static_cast<int>(value);
        } else if (value < 1 && digits >= 1 && digits <= 15 && value == std::pow(10.0, -digits)) {
            form.max_fraction_digits = static_cast<int>(digits);
        } else {
            require(false, path, ": multipleOf: ", given.dump(), "; it must be a whole number up to ", max_multiple,
                    ", or 0.1, 0.01, ...");
        }
    }

    struct bound {
        number_bound limit;
        double value;
    };
    static std::optional<bound> bound_of(const ordered_json& schema, const char* keyword, bool exclusive,
                                         const std::string& path) {
        if (!schema.contains(keyword)) return std::nullopt;
        const ordered_json& given = schema[keyword];
        require(given.is_number(), path, ": ", keyword, ": ", shown(given), "; it must be a number");
        const double value = given.get<double>();
        const decimal exact = given.is_number_integer() && std::fabs(value) < 9e18 ? decimal::of(given.get<long long>())
                                                                                   : decimal::of(value);
        return bound{{exact, exclusive}, value};
    }
    // `sign` 1: the greater one.
    static std::optional<number_bound> tighter(const std::optional<bound>& inclusive,
                                               const std::optional<bound>& exclusive, int sign) {
        if (!inclusive && !exclusive) return std::nullopt;
        if (!inclusive) return exclusive->limit;
        if (!exclusive) return inclusive->limit;
        return sign * exclusive->value >= sign * inclusive->value ? exclusive->limit : inclusive->limit;
    }

    static std::optional<int> count_of(const ordered_json& schema, const char* keyword, const std::string& path) {
        if (!schema.contains(keyword)) return std::nullopt;
        const ordered_json& given = schema[keyword];
        constexpr int most = 1'000'000;
        const double value = given.is_number() ? given.get<double>() : -1;
        require(value >= 0 && value <= most && value == std::floor(value), path, ": ", keyword, ": ", shown(given),
                "; it must be a whole number from 0 to ", most);
        return static_cast<int>(value);
    }
    static void require_order(int least, int most, const std::string& path, const char* lower, const char* upper) {
        require(most == unlimited || least <= most, path, ": ", lower, ": ", least, "; it is more than ", upper, ", ",
                most);
    }
    static std::string text_of(const ordered_json& value, const std::string& path, const char* keyword) {
        require(value.is_string(), path, ": ", keyword, ": ", shown(value), "; it must be a string");
        return value.get<std::string>();
    }
    static std::string shown(const ordered_json& value) {
        const std::string text = value.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
        return text.size() <= 60 ? text : text.substr(0, 57) + "...";
    }

    const ordered_json& at_pointer(const std::string& reference, const std::string& path) const {
        require(reference == "#" || reference.starts_with("#/"), path, ": $ref: \"", reference,
                "\"; only references within the schema are supported, such as \"#/$defs/name\"");
        try {
            return root_.at(ordered_json::json_pointer(without_percent_escapes(reference.substr(1))));
        } catch (const ordered_json::exception&) {
            require(false, path, ": $ref: \"", reference, "\"; the schema has no such part");
        }
        return root_;
    }

    const ordered_json& root_;
    grammar_builder& rules_;
    json_values values_;
    std::map<std::string, std::int32_t> rule_of_schema_;
    std::deque<pending_rule> pending_;
    std::size_t compiled_bytes_ = 0;
};

}  // namespace

std::int32_t add_json_schema(grammar_builder& rules, std::string_view schema, json_spacing spacing) {
    const ordered_json root = parsed(schema);
    return schema_compiler(root, rules, spacing).compile();
}

grammar grammar_of_json_schema(std::string_view schema, json_spacing spacing) {
    grammar_builder rules;
    const std::int32_t start = add_json_schema(rules, schema, spacing);
    return std::move(rules).finished(start);
}

}  // namespace imbrex::engine
