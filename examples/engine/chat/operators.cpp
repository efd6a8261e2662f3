#include "engine/chat/operators.hpp"

#include <algorithm>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <limits>

namespace imbrex::engine::jinja {

namespace {

value made(const builtin_context& context, std::string text) {
    context.charge(text.size());
    return text;
}

value concatenated(const builtin_context& context, const list& left, const list& right) {
    context.charge(left.size() + right.size());
    list all = left;
    all.insert(all.end(), right.begin(), right.end());
    return all;
}

value repeated(const builtin_context& context, const value& of, std::int64_t times) {
    const std::size_t size = of.is_string() ? of.text().size() : of.items().size();
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
    if (size == 0) return of;
    context.charge(count > std::numeric_limits<std::size_t>::max() / size ? std::numeric_limits<std::size_t>::max()
                                                                          : count * size);
    std::string text;
    list items;
    for (std::size_t i = 0; i < count; ++i) {
        if (of.is_string())
            text += of.text();
        else
            items.insert(items.end(), of.items().begin(), of.items().end());
    }
    return of.is_string() ? value(std::move(text)) : value(std::move(items));
}

value of_reals(std::string_view sign, double left, double right) {
    if (sign == "+") return left + right;
    if (sign == "-") return left - right;
    if (sign == "*") return left * right;
    if (sign == "/") return left / right;
    if (sign == "//") return std::floor(left / right);
    if (sign == "**") return std::pow(left, right);
    const double rest = std::fmod(left, right);
    return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

// False if the result does not fit.
bool power(std::int64_t left, std::int64_t right, std::int64_t& result) {
    result = 1;
    if (left == 1 || right == 0) return true;
    if (left == -1 || left == 0) {
        result = left == 0 ? 0 : right % 2 == 0 ? 1 : -1;
        return true;
    }
    for (std::int64_t i = 0; i < right; ++i) {
        if (__builtin_mul_overflow(result, left, &result)) return false;
    }
    return true;
}

// Rounds down, unlike C++.
bool divide(std::int64_t left, std::int64_t right, bool wants_rest, std::int64_t& result) {
    if (left == std::numeric_limits<std::int64_t>::min() && right == -1) return false;
    const std::int64_t rest = left % right;
    const bool is_rounded_up = rest != 0 && (rest < 0) != (right < 0);
    result = wants_rest ? rest + (is_rounded_up ? right : 0) : left / right - (is_rounded_up ? 1 : 0);
    return true;
}

value of_wholes(std::string_view sign, std::int64_t left, std::int64_t right) {
    std::int64_t result = 0;
    bool fits = true;
    if (sign == "+") fits = !__builtin_add_overflow(left, right, &result);
    if (sign == "-") fits = !__builtin_sub_overflow(left, right, &result);
    if (sign == "*") fits = !__builtin_mul_overflow(left, right, &result);
    if (sign == "//" || sign == "%") fits = divide(left, right, sign == "%", result);
    if (sign == "**") {
        if (right < 0) return std::pow(static_cast<double>(left), static_cast<double>(right));
        fits = power(left, right, result);
    }
    require(fits, "the result of ", left, " ", std::string(sign), " ", right, " does not fit into 64 bits");
    return result;
}

}  // namespace

value apply_operator(const builtin_context& context, std::string_view sign, const value& left, const value& right) {
    const auto repeats = [](const value& of) { return of.is_string() || of.is_list(); };
    if (sign == "~") return made(context, text_of(left) + text_of(right));
    if (sign == "+" && left.is_string() && right.is_string() && (left.is_safe() || right.is_safe())) {
        const auto escaped = [](const value& of) { return of.is_safe() ? of.text() : html_escaped(of.text()); };
        const std::string both = escaped(left) + escaped(right);
        context.charge(both.size());
        return value::safe(both);
    }
    if (sign == "+" && left.is_string() && right.is_string()) return made(context, left.text() + right.text());
    if (sign == "+" && left.is_list() && right.is_list()) return concatenated(context, left.items(), right.items());
    if (sign == "%" && left.is_string())
        return made(context, percent_format(left.text(), right.is_list() ? right.items() : list{right}));
    if (sign == "*" && repeats(left) && right.is_int()) return repeated(context, left, right.whole());
    if (sign == "*" && left.is_int() && repeats(right)) return repeated(context, right, left.whole());
    if (!left.is_number() || !right.is_number())
        require(false, described(left), " ", std::string(sign), " ", described(right), " is not possible");
    const bool divides = sign == "/" || sign == "//" || sign == "%";
    require(!divides || right.real() != 0, "division by zero");
    if (left.is_float() || right.is_float() || sign == "/") return of_reals(sign, left.real(), right.real());
    return of_wholes(sign, left.whole(), right.whole());
}

value apply_unary(std::string_view sign, const value& of) {
    if (sign == "not") return !is_true(of);
    require(of.is_number(), std::string(sign), " before ", described(of), "; a number is needed");
    if (of.is_float()) return sign == "-" ? -of.real() : of.real();
    return of_wholes(sign, 0, of.whole());
}

bool compares(const value& left, std::string_view sign, const value& right) {
    if (sign == "==") return equal(left, right);
    if (sign == "!=") return !equal(left, right);
    if (sign == "in") return contains(right, left);
    if (sign == "not in") return !contains(right, left);
    const int order = compare(left, right);
    if (sign == "<") return order < 0;
    if (sign == "<=") return order <= 0;
    return sign == ">" ? order > 0 : order >= 0;
}

value slice_of(const value& of, const value& start, const value& stop, const value& step) {
    require(of.is_list() || of.is_string(), described(of), " cannot be sliced");
    for (const value* bound : {&start, &stop, &step}) {
        require(bound->is_none() || bound->is_int() || bound->is_bool(), "a slice has ", described(*bound),
                "; whole numbers are needed");
    }
    const std::int64_t size = length_of(of);
    const std::int64_t by = step.is_none() ? 1 : std::clamp(step.whole(), -size - 1, size + 1);
    require(by != 0, "a slice has the step 0");
    const auto place = [&](const value& wanted, std::int64_t other) {
        if (wanted.is_none()) return other;
        const std::int64_t from_start = wanted.whole() < 0 ? wanted.whole() + size : wanted.whole();
        return by > 0 ? std::clamp<std::int64_t>(from_start, 0, size)
                      : std::clamp<std::int64_t>(from_start, -1, size - 1);
    };
    const std::int64_t first = place(start, by > 0 ? 0 : size - 1), end = place(stop, by > 0 ? size : -1);
    const list items = items_of(of);
    list taken;
    std::string text;
    for (std::int64_t i = first; by > 0 ? i < end : i > end; i += by) {
        const value& item = items[static_cast<std::size_t>(i)];
        if (of.is_string())
            text += item.text();
        else
            taken.push_back(item);
    }
    return of.is_string() ? value(std::move(text)) : value(std::move(taken));
}

}  // namespace imbrex::engine::jinja
