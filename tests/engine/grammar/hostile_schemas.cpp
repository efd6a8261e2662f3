// Schemas that would need endless time or memory: refused, or compiled within the budget.
#include <chrono>
#include <string>

#include "engine/grammar/json_schema.hpp"
#include "engine/grammar/support.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::test;

TEST_CASE("Hostile schemas are refused or compiled within the budget") {
    const auto takes_seconds = [](const std::string& schema) {
        const auto begin = std::chrono::steady_clock::now();
        const std::string message = schema_error_of(schema);
        CAPTURE(message);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    json many{{"type", "object"}, {"properties", json::object()}};
    for (int i = 0; i < 3000; ++i) many["properties"]["property " + std::to_string(i)] = {{"type", "string"}};
    CHECK(takes_seconds(many.dump()) < 60);
    json chain{{"$ref", "#/$defs/d0"}, {"$defs", json::object()}};
    for (int i = 0; i < 3000; ++i)
        chain["$defs"]["d" + std::to_string(i)] = {{"type", "array"},
                                                   {"items", {{"$ref", "#/$defs/d" + std::to_string((i + 1) % 3000)}}}};
    CHECK(schema_error_of(chain.dump()) == "no error");
    for (auto& [name, part] : chain["$defs"].items()) part["minItems"] = 1;
    CHECK(schema_error_of(chain.dump()) == "the constraint allows no text");
    chain["$defs"]["d2999"] = {{"type", "null"}};
    CHECK(schema_error_of(chain.dump()).starts_with("the constraint is too deep"));
    // Alternatives that double with each level.
    json doubled{{"$ref", "#/$defs/d0"}, {"$defs", {{"d30", {{"type", "null"}}}}}};
    for (int i = 0; i < 30; ++i) {
        const json next{{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
        doubled["$defs"]["d" + std::to_string(i)] = {{"anyOf", {next, {{"anyOf", {next, {{"const", i}}}}}}}};
    }
    CHECK(takes_seconds(doubled.dump()) < 60);
    CHECK(takes_seconds(R"({"$defs": {"p": {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/$defs/p"},
        {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/$defs/p"}, {"$ref": "#/$defs/q"}]}}}]}}},
        "q": {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/$defs/q"}, {"$ref": "#/$defs/p"}]}}}},
        "$ref": "#/$defs/p"})") < 60);
    CHECK(schema_error_of(R"({"type": "string", "maxLength": 1000000})").starts_with("the constraint is too"));
    CHECK(
        schema_error_of(R"({"type": "array", "items": {}, "minItems": 1000000})").starts_with("the constraint is too"));
    CHECK(schema_error_of(R"({"type": "string", "pattern": "(a|b)*a(a|b){40}"})").starts_with("the constraint is too"));
}
