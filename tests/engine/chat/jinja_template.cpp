// Chat templates against the texts that Jinja in Python makes (chat_templates.py), limits and errors.
#include "engine/chat/jinja_template.hpp"

#include "engine/support.hpp"

namespace imbrex::engine::jinja {

namespace {

using engine::test::check_error_message;
using engine::test::content;
using json = nlohmann::ordered_json;

std::string render(std::string_view source, const json& variables = json::object(),
                   const render_options& options = {}) {
    return jinja_template(source, "test").render(variables, options);
}

render_options on_day(const std::string& date) {
    render_options options;
    options.now.tm_year = std::stoi(date.substr(0, 4)) - 1900;
    options.now.tm_mon = std::stoi(date.substr(5, 2)) - 1;
    options.now.tm_mday = std::stoi(date.substr(8, 2));
    std::mktime(&options.now);
    return options;
}

}  // namespace

TEST_CASE("Renders templates as Jinja in Python does") {
    const auto golden = json::parse(content("tests/engine/data/chat_templates.json"));
    const render_options options = on_day(golden["now"]);
    CHECK(golden["results"].size() >= 20);
    for (const auto& [name, cases] : golden["results"].items()) {
        CAPTURE(name);
        const jinja_template made(content("tests/engine/data/chat_templates/" + name + ".jinja"), name);
        for (const auto& [variables, expected] : cases.items()) {
            CAPTURE(variables);
            if (expected.contains("text")) {
                CHECK(made.render(golden["cases"][variables], options) == expected["text"].get<std::string>());
            } else {
                check_error_message(name + ": line ", [&] { made.render(golden["cases"][variables], options); });
            }
        }
    }
}

TEST_CASE("Errors name the template, the line and the cause") {
    const auto refused = [](const std::string& part, std::string_view source) {
        check_error_message("test: line " + part, [&] { render(source); });
    };
    refused("2: Not like this", "x\n{{ raise_exception('Not like this') }}");
    refused("3: \"nothing\", which is undefined has no attribute \"x\"", "\n\n{{ nothing.x }}");
    refused("1: there is no filter \"shout\"", "{{ 1 | shout }}");
    refused("1: there is no test \"tall\"", "{{ 1 is tall }}");
    refused("1: \"f\", which is undefined cannot be called", "{{ f() }}");
    refused("1: a number + a string is not possible", "{{ 1 + 'a' }}");
    refused("1: division by zero", "{{ 1 // 0 }}");
    refused("1: the result of 9223372036854775807 + 1 does not fit", "{{ 9223372036854775807 + 1 }}");
    refused("3: the block of line 2 has no {% endif %}", "\n{% if true %}\n\n");
    refused("1: {% endfor %} stands where no block is open", "{% endfor %}");
    refused("1: {% include %} is not supported", "{% include 'x' %}");
    refused("1: break stands outside of a loop", "{% break %}");
    refused("1: a tag is not closed", "{{ 1 ");
    refused("1: a comment is not closed", "{# x");
    refused("1: the string of line 1 is not closed", "{{ 'x }}");
    refused("1: \"]\" closes no bracket", "{{ (1] }}");
    refused("1: \"$\" is not expected", "{{ $ }}");
    refused("1: the end of the tag stands where an expression is expected", "{{ }}");
    refused("1: 99999999999999999999 does not fit into 64 bits", "{{ 99999999999999999999 }}");
    refused("1: * and ** in arguments", "{{ f(*x) }}");
    refused("1: {% raw %} has no", "{% raw %}x");
    refused("1: there are 3 values for 2 variables", "{% for a, b in [[1, 2, 3]] %}{% endfor %}");
    refused("1: {% set x.y %}: \"x\" is no namespace", "{% set x = {} %}{% set x.y = 1 %}");
    refused("1: tojson: \"x\", which is undefined cannot be written", "{{ x | tojson }}");
    refused("1: format: the field \":>9\"", "{{ '{:>9}'.format(1) }}");
}

TEST_CASE("Work, memory, depth and output of a template are limited") {
    const auto refused = [](const std::string& part, std::string_view source) {
        check_error_message(part, [&] { render(source, json::object(), {.max_work = 1'000'000}); });
    };
    const std::string many = "range(99999)";
    refused("works too long", "{% for a in " + many + " %}{% for b in " + many + " %}{% endfor %}{% endfor %}");
    refused("range: more than 100000", "{{ range(100001) | length }}");
    refused("too large values", "{{ 'x' * 1000000000000 }}");
    refused("too large values", "{{ [1] * 9223372036854775807 }}");
    refused("too large values",
            "{% set ns = namespace(x='x') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}");
    refused("too large values",
            "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}");
    refused("too large values", "{{ 'x'.ljust(1000000000000) }}");
    refused("macros call each other more than", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    refused("nested more than 200 deep",
            "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}");
    refused("nested more than 200 deep", "{{ " + std::string(300, '(') + "1" + std::string(300, ')') + " }}");
    refused("nested more than 200 deep", "{{ " + std::string(3000, '-') + "1 }}");
    std::string blocks;
    for (int i = 0; i < 300; ++i) blocks += "{% if true %}";
    refused("nested more than 200 deep", blocks);
    check_error_message("the result is longer than 10 bytes",
                        [] { render("01234567890", json::object(), {.max_output = 10}); });
    // A namespace that holds itself can be made, but not printed.
    CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}") == "True");
    refused("nested more than 200 deep", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}");
}

TEST_CASE("Line breaks of any kind are \\n, and one at the end is dropped") {
    CHECK(render("a\r\nb\rc\n") == "a\nb\nc");
    CHECK(render("{% if true %}\r\nx{% endif %}\n\n") == "x");
    CHECK(render("") == "");
}

}  // namespace imbrex::engine::jinja
