// The syntax tree of a template: expressions and statements. parser.cpp makes it, interpreter.cpp runs it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/value.hpp"

namespace imbrex::engine::jinja {

enum class expression_kind {
    constant,
    name,         // text
    list,         // parts; text: tuple_text for a tuple
    dictionary,   // parts: keys and values in turn
    attribute,    // parts[0].text
    subscript,    // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]]; a part may be missing
    call,         // parts[0](parts[1], ..., named)
    filter,       // parts[0] | text(parts[1], ..., named)
    test,         // parts[0] is text(parts[1], ...)
    unary,        // text: - + not
    binary,       // text: + - * / // % ** ~ and or
    comparison,   // parts[0] operators[0] parts[1] operators[1] ...
    conditional,  // parts[0] if parts[1] else parts[2], which may be missing
};

struct expression {
    expression_kind kind = expression_kind::constant;
    int line = 0;
    std::string text{};
    value constant{};
    std::vector<std::unique_ptr<expression>> parts{};
    std::vector<std::pair<std::string, std::unique_ptr<expression>>> named{};
    std::vector<std::string> operators{};
};
using expression_pointer = std::unique_ptr<expression>;

enum class statement_kind {
    text,
    print,         // of
    conditional,   // if of: body, else: other
    loop,          // for names in of if condition: body, else: other
    assign,        // names or a member of a namespace = of
    capture,       // {% set name %}body{% endset %}, with filters
    macro,         // text(names = defaults): body
    call_block,    // {% call(names) of %}body{% endcall %}
    filter_block,  // {% filter of %}body{% endfilter %}; "of" filters the name "body"
    scope,         // {% with names = values %}body{% endwith %}
    group,         // {% generation %}body{% endgeneration %}
    leave,         // break
    next,          // continue
};

struct statement {
    statement_kind kind = statement_kind::text;
    int line = 0;
    std::string text{};
    std::vector<std::string> names{};
    std::string member{};  // of names[0], for an assignment
    expression_pointer of{}, condition{};
    std::vector<expression_pointer> values{};
    std::vector<statement> body{}, other{};
    bool is_recursive = false;
};

inline constexpr const char* tuple_text = "()";

// Name of the text that a filter block filters.
inline constexpr const char* block_name = "(block)";

std::vector<statement> parse(std::string_view source, const std::string& name);

}  // namespace imbrex::engine::jinja
