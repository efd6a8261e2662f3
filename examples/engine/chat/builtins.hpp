// What templates can call besides their macros: filters, tests and methods of values, as Jinja and Python define them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/chat/value.hpp"

namespace imbrex::engine::jinja {

// Charges work and memory to the template's budget; throws when it is spent.
using budget_function = std::function<void(std::size_t)>;

struct builtin_context {
    budget_function charge;
};

// Throw for unknown names and wrong arguments.
value apply_filter(const builtin_context& context, std::string_view name, const value& of, const arguments& given);
bool apply_test(std::string_view name, const value& of, const arguments& given);

// A method such as text.split or entries.items, bound to the value; nothing if the value has no such method.
std::optional<value> method_of(const builtin_context& context, const value& of, std::string_view name);

// of.name and of[name]; undefined if missing.
value attribute_of(const builtin_context& context, const value& of, std::string_view name);
value element_of(const builtin_context& context, const value& of, const value& key);

// "a %s b" % (values): Python's formatting of strings, without widths.
std::string percent_format(const std::string& format, const list& values);

value string_method(const builtin_context& context, const std::string& text, std::string_view name,
                    const arguments& given);
bool is_string_method(std::string_view name);

// Checked reading of arguments.
std::string text_argument(const arguments& given, std::size_t place, std::string_view name);
std::int64_t whole_argument(const arguments& given, std::size_t place, std::string_view name, std::int64_t other);

}  // namespace imbrex::engine::jinja
