// JSON Schemas as constraints: texts that they allow and do not allow, what they refuse, and random texts of random schemas
// against an independent validator.
#include "engine/grammar/json_schema.hpp"

#include <random>
#include <string>
#include <vector>

#include "engine/grammar/support.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::test;

namespace {

struct schema_case {
    std::string schema;
    std::vector<std::string> allowed, refused;
};

void check_cases(const std::vector<schema_case>& cases) {
    const auto tokens = bytes_trie();
    for (const schema_case& each : cases) {
        CAPTURE(each.schema);
        const shared_constraint constraint = constrain_to_json_schema(each.schema, tokens);
        const schema_validator validator(json::parse(each.schema));
        for (const std::string& text : each.allowed) {
            CHECK_MESSAGE(allows(constraint, text), text);
            CHECK_MESSAGE(validator.accepts(json::parse(text)), text);
        }
        for (const std::string& text : each.refused) CHECK_MESSAGE(!allows(constraint, text), text);
    }
}

}  // namespace

TEST_CASE("Strings of JSON Schemas") {
    check_cases({
        {R"({"type": "string"})",
         {R"("")", R"("a b")", R"("\"\\\/\b\f\n\r\t")", "\"\xc3\xa9\xf0\x9f\x98\x80\"", R"("\u00e9\uD83D\uDE00")"},
         {"", "a", R"("a)", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\udc00")", R"("\u12")", "\"\xff\"", R"(""")"}},
        {R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {R"("ab")", "\"\xc3\xa9\xf0\x9f\x98\x80\"", R"("\n\"\u0041")"},
         {R"("a")", R"("abcd")", "\"\xc3\xa9\"", R"("\n")"}},
        {R"({"type": "string", "pattern": "^[a-c]+\\d*$"})", {R"("a")", R"("abc12")"}, {R"("")", R"("1")", R"("ab ")"}},
        {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")", R"("\"b\n")"}, {R"("")", R"("ac")"}},
        {R"({"type": "string", "pattern": "^\"\\\\\n$"})", {R"("\"\\\n")"}, {R"("x")"}},
        {R"({"type": "string", "pattern": "a", "maxLength": 2})", {R"("a")", R"("ba")"}, {R"("bba")", R"("bb")"}},
        {R"({"type": "string", "format": "date"})",
         {R"("2024-02-29")", R"("1999-12-31")", R"("2000-02-29")"},
         {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")", R"("0000-01-01")"}},
        {R"({"type": "string", "format": "date-time"})",
         {R"("2024-01-31T23:59:59Z")", R"("2024-01-31T00:00:00.25+02:00")"},
         {R"("2024-01-31 23:59:59Z")", R"("2024-01-31T24:00:00Z")"}},
        {R"({"type": "string", "format": "uuid"})",
         {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567-e89b-12d3-a456-42661417400")", R"("123e4567-e89b-12d3-a456-42661417400g")"}},
        {R"({"type": "string", "format": "ipv4"})",
         {R"("0.10.200.255")"},
         {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"}},
        {R"({"type": "string", "format": "ipv6"})",
         {R"("::")", R"("2001:db8::1")", R"("1:2:3:4:5:6:7:8")", R"("::ffff:0")"},
         {R"("1:2:3")", R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7:8:9")"}},
        {R"({"type": "string", "format": "email"})",
         {R"("a.b@c.org")"},
         {R"("a@")", R"("a@b")", R"("@b.c")", R"("a..b@c.d")"}},
        {R"({"type": "string", "format": "time"})", {R"("12:30:00Z")"}, {R"("12:30")"}},
        {R"({"type": "string", "format": "duration"})",
         {R"("P1DT2H")", R"("PT5S")", R"("P3W")"},
         {R"("P")", R"("PT")"}},
        {R"({"type": "string", "format": "hostname"})", {R"("a-b.example")"}, {R"("-a")", R"("a..b")"}},
        {R"({"type": "string", "format": "uri"})", {R"("https://a.org/b?c=d#e")"}, {R"("a.org")", R"("https:// ")"}},
    });
}

TEST_CASE("Numbers of JSON Schemas") {
    check_cases({
        {R"({"type": "integer"})",
         {"0", "-1", "123456789012345678", "-0"},
         {"01", "+1", "1.0", "1e3", "-", "1234567890123456789"}},
        {R"({"type": "number"})",
         {"0", "-1.25", "1e5", "2E-10", "0.0001", "12.5e+99"},
         {"1.", ".5", "1e", "1e100", "00", "0.12345678901234567"}},
        {R"({"type": "integer", "minimum": 7})", {"7", "8", "10", "99"}, {"6", "0", "-8"}},
        {R"({"type": "integer", "minimum": -12, "maximum": 105})",
         {"-12", "-9", "0", "-0", "9", "99", "100", "105"},
         {"-13", "-20", "-100", "106", "110", "200", "1000"}},
        {R"({"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": -1})", {"-2"}, {"-3", "-1", "0", "2"}},
        {R"({"type": "integer", "minimum": 1.5, "maximum": 3.5})", {"2", "3"}, {"1", "4"}},
        {R"({"type": "number", "minimum": 0.5, "exclusiveMaximum": 2})",
         {"0.5", "0.50", "1", "1.999", "0.6"},
         {"0.4", "0.49999", "2", "2.0", "-1", "0", "5e-1"}},
        {R"({"type": "number", "exclusiveMinimum": 0})", {"0.001", "1", "0.5"}, {"0", "0.0", "-1", "-0"}},
        {R"({"type": "number", "maximum": -1.25})", {"-1.25", "-1.3", "-2", "-10"}, {"-1.2", "-1", "0", "1.25"}},
        {R"({"type": "number", "exclusiveMinimum": 1.5, "maximum": 1.75})",
         {"1.51", "1.7", "1.75", "1.750", "1.50001"},
         {"1.5", "1.50", "1.76", "1.751", "1", "2"}},
        {R"({"type": "integer", "multipleOf": 7, "minimum": 0})", {"0", "7", "14", "700"}, {"1", "15", "-7"}},
        {R"({"type": "number", "multipleOf": 0.01})", {"1.25", "-3", "0.1"}, {"1.255"}},
        {R"({"type": "integer", "minimum": 5, "maximum": 5})", {"5"}, {"4", "6", "55"}},
    });
    CHECK(schema_error_of(R"({"type": "integer", "minimum": 5, "maximum": 4})") == "the constraint allows no text");
}

TEST_CASE("Integer bounds, exhaustively") {
    const auto tokens = bytes_trie();
    std::mt19937 generator(3);
    for (int i = 0; i < 25; ++i) {
        const int least = static_cast<int>(generator() % 400) - 200, most = least + static_cast<int>(generator() % 150);
        CAPTURE(least);
        CAPTURE(most);
        const json schema{{"type", "integer"}, {"minimum", least}, {"maximum", most}};
        const shared_constraint constraint = constrain_to_json_schema(schema.dump(), tokens);
        bool right = true;
        for (int value = -450; value <= 450; ++value)
            right = right && allows(constraint, std::to_string(value)) == (value >= least && value <= most);
        CHECK(right);
    }
}

TEST_CASE("Arrays and objects of JSON Schemas") {
    check_cases({
        {R"({"type": "array", "items": {"type": "boolean"}})",
         {"[]", "[ ]", "[true]", "[true,false]", "[true, false]", "[\n  true,\n  false\n]"},
         {"[true,]", "[,]", "[1]", "[  true]", "[true ,false]", "[true\n\n]"}},
        {R"({"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1,1,1]"},
         {"[]", "[1,1,1,1]"}},
        {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": false})",
         {"[]", "[1]", "[1,2]"},
         {"[2]", "[1,2,3]"}},
        {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 2})",
         {"[1,2]", "[1,2,2]"},
         {"[1]", "[]", "[2,2]"}},
        {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "maxItems": 1})",
         {"[]", "[1]"},
         {"[1,2]"}},
        {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"]})",
         {R"({"b":2})", R"({"a": 1, "b": 2})", R"({"b":2,"c":3})", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}"},
         {"{}", R"({"a":1})", R"({"b":2,"a":1})", R"({"b":2,})", R"({"a":1,"b":2,"d":4})", R"({,"b":2})"}},
        {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "additionalProperties": false})",
         {"{}", "{ }", R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
         {R"({"b":2,"a":1})", R"({"a":1,"a":1})", "{  }"}},
        {R"({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "null"}})",
         {"{}", R"({"a":1})", R"({"b":null})", R"({"a":1,"b":null,"aa":null})", R"({"\"":null})"},
         {R"({"a":null})", R"({"b":1})", R"({"b":null,"a":1})", R"({"b":null,"a":null})", R"({"\u0061":null})"}},
        {R"({"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}})",
         {R"({"x":1})", R"({"x":1,"y":2})"},
         {"{}", R"({"y":2})"}},
        {R"({"type": "object", "properties": {"a\"\n": {}, "~/": {"const": 0}}})",
         {R"({"a\"\n":[1,{"x":null}],"~/":0})"},
         {R"({"a":1})"}},
        {R"({"type": "object", "properties": {"a": false, "b": true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
    });
}

TEST_CASE("Combinations in JSON Schemas") {
    check_cases({
        {"true", {"1", "null", R"({"a":[1,{}]})", R"("x")"}, {"", "nul", "{]"}},
        {"{}", {"1", "[]"}, {""}},
        {R"({"enum": ["a", 1, null, [1, {"x": 2}], "a"]})",
         {R"("a")", "1", "null", R"([1,{"x":2}])"},
         {R"("b")", "2", "[1]"}},
        {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
        {R"({"const": {"k": "v"}})", {R"({"k":"v"})"}, {R"({"k":"w"})"}},
        {R"({"type": ["integer", "null"]})", {"4", "null"}, {"true", "1.5"}},
        {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})",
         {"12", R"("a")"},
         {R"("ab")", "null"}},
        {R"({"oneOf": [{"const": 1}, {"const": 2}]})", {"1", "2"}, {"3"}},
        {R"({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}], "minimum": 4})", {"4", "5"}, {"3", "6"}},
        {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
             {"type": "object", "properties": {"b": {"type": "null"}, "a": {"minimum": 7}}, "required": ["b"]}]})",
         {R"({"a":7,"b":null})"},
         {R"({"a":6,"b":null})", R"({"a":7})"}},
        {R"({"allOf": [{"properties": {"a": {"const": 1}}, "additionalProperties": false, "type": "object"},
             {"type": "object", "properties": {"b": {"const": 2}}}]})",
         {"{}", R"({"a":1})"},
         {R"({"a":1,"b":2})", R"({"b":2})"}},
        {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
             "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
         {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
         {"{}"}},
        {R"({"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}})",
         {"[1,2]"},
         {"[null]"}},
        {R"({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "maximum": 3, "description": "x"})",
         {"3"},
         {"4"}},
        {R"({"definitions": {"a/b": {"const": 1}}, "$ref": "#/definitions/a~1b"})", {"1"}, {"2"}},
        {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
             "required": ["v", "next"]})",
         {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
         {R"({"v":1})", R"({"v":1,"next":{}})"}},
        {R"({"minLength": 2})", {R"("ab")"}, {R"("a")"}},
        {R"({"properties": {"a": {"const": 1}}})", {R"({"a":1})", "{}"}, {R"({"a":2})"}},
        {R"({"title": "T", "description": "D", "default": 1, "examples": [1], "$schema": "s", "x-order": 1, "type": "null"})",
         {"null"},
         {"1"}},
    });
}

TEST_CASE("White space of JSON is limited, or absent") {
    const std::string schema = R"({"type": "object", "properties": {"a": {"type": "array"}}})";
    const shared_constraint compact = constrain_to_json_schema(schema, bytes_trie(), json_spacing::compact);
    CHECK(allows(compact, R"({"a":[1,{"x":2}]})"));
    for (const char* const text : {R"({"a": []})", R"({ "a":[]})", R"({"a":[1, 2]})"}) CHECK(!allows(compact, text));
    const shared_constraint flexible = constrain_to_json_schema(schema, bytes_trie());
    CHECK(allows(flexible, "{\n" + std::string(20, ' ') + "\"a\": []\n}"));
    CHECK(!allows(flexible, "{\n" + std::string(21, ' ') + "\"a\": []\n}"));
    CHECK(!allows(flexible, " {}"));
    CHECK(!allows(flexible, "{} "));
}

TEST_CASE("Schemas that are refused name the path and the keyword") {
    const auto refuses = [](const std::string& schema, const std::string& message) {
        CAPTURE(schema);
        CHECK(schema_error_of(schema) == message);
    };
    refuses(R"({"type": "object", "properties": {"a/b": {"type": "array", "items": {"not": {}}}}})",
            "#/properties/a~1b/items: not: this keyword is not supported");
    refuses(R"({"type": "array", "uniqueItems": true})", "#: uniqueItems: this keyword is not supported");
    refuses(R"({"type": "object", "patternProperties": {}})", "#: patternProperties: this keyword is not supported");
    refuses(R"({"requierd": ["a"]})", "#: requierd: this keyword is not supported");
    refuses(R"({"type": "text"})",
            "#: type: \"text\"; it must be object, array, string, integer, number, boolean or null");
    refuses(R"({"type": "string", "format": "iri"})",
            "#: format: \"iri\"; known are date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri");
    refuses(R"x({"type": "string", "pattern": "(?=a)"})x",
            "#: pattern: look-ahead or another special group at position 2 of \"(?=a)\" is not supported");
    refuses(R"({"type": "string", "minLength": 3, "maxLength": 2})", "#: minLength: 3; it is more than maxLength, 2");
    refuses(R"({"type": "string", "minLength": -1})", "#: minLength: -1; it must be a whole number from 0 to 1000000");
    refuses(R"({"type": "number", "multipleOf": 0.3})",
            "#: multipleOf: 0.3; it must be a whole number up to 10000, or 0.1, 0.01, ...");
    refuses(R"({"type": "number", "minimum": "1"})", "#: minimum: \"1\"; it must be a number");
    refuses(R"({"type": "object", "required": ["a"], "additionalProperties": false})",
            "#: required: \"a\" is no property, and there must be no others");
    refuses(R"({"type": "array", "items": [{}]})",
            "#: items: an array of schemas is not supported; prefixItems is its present name");
    refuses(R"({"type": "array", "items": false, "minItems": 1})", "#: minItems: 1; there are at most 0 elements");
    refuses(R"({"anyOf": []})", "#: anyOf: []; it must be an array of schemas");
    refuses(R"({"enum": ["a"], "minLength": 1})", "#: minLength: beside enum it is not supported");
    refuses(R"({"$ref": "http://a.org/b"})",
            "#: $ref: \"http://a.org/b\"; only references within the schema are supported, "
            "such as \"#/$defs/name\"");
    refuses(R"({"$ref": "#/$defs/x"})", "#: $ref: \"#/$defs/x\"; the schema has no such part");
    refuses(R"({"$ref": "#"})", "#: it refers to itself without an object or an array between");
    refuses(R"({"$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"})",
            "#/$defs/a: it refers to itself without an object or an array between");
    refuses(R"({"allOf": [{"$ref": "#"}]})",
            "#: allOf: schemas that refer to each other are nested more than 64 levels deep");
    refuses(R"({"allOf": [{"format": "date"}, {"format": "time"}]})",
            "#: format: two schemas that hold together have different values, \"date\" and \"time\"; this is not "
            "supported");
    refuses("false", "the constraint allows no text");
    refuses(R"({"enum": []})", "the constraint allows no text");
    refuses(R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
            "the constraint allows no text");
    refuses("[1]", "#: [1]; a schema must be an object, true or false");
    CHECK(schema_error_of("{").starts_with("#: the schema is not JSON: "));
    CHECK(schema_error_of(std::string(200, '[')).starts_with("#: the schema is nested more than 128 levels deep"));
}
