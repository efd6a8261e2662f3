// Operators of expressions, with the results of Python. Integers have 64 bits.
#pragma once

#include <string_view>

#include "engine/chat/builtins.hpp"

namespace imbrex::engine::jinja {

// + - * / // % ** ~
value apply_operator(const builtin_context& context, std::string_view sign, const value& left, const value& right);
value apply_unary(std::string_view sign, const value& of);  // + - not

// == != < <= > >= in, not in
bool compares(const value& left, std::string_view sign, const value& right);

// of[start:stop:step]; none stands for what is left out.
value slice_of(const value& of, const value& start, const value& stop, const value& step);

}  // namespace imbrex::engine::jinja
