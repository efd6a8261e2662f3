#include "engine/chat/builtins.hpp"

#include <algorithm>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <limits>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

// list.count, dict.get, ... with the arguments of the call. As in transformers, nothing changes a list or a mapping.
value list_method(const value& of, std::string_view name, const arguments& given) {
    const list& items = of.items();
    const value first = given.get(0, "", value());
    const auto is_equal = [&](const value& item) { return equal(item, first); };
    if (name == "count") return static_cast<std::int64_t>(std::ranges::count_if(items, is_equal));
    const auto found = std::ranges::find_if(items, is_equal);
    require(found != items.end(), "index: the list has no such item");
    return static_cast<std::int64_t>(found - items.begin());
}

value dict_method(const value& of, std::string_view name, const arguments& given) {
    const dict& entries = of.entries();
    list all;
    if (name == "keys" || name == "values" || name == "items") {
        for (const auto& [key, content] : entries.entries)
            all.push_back(name == "keys" ? key : name == "values" ? content : value::tuple({key, content}));
        return all;
    }
    if (name == "copy") return of;
    const value* found = entries.find(given.get(0, "key", value()));
    return found ? *found : given.get(1, "default", value::none{});  // get
}

bool is_among(std::string_view name, std::initializer_list<std::string_view> all) {
    return std::ranges::find(all, name) != all.end();
}

}  // namespace

std::string text_argument(const arguments& given, std::size_t place, std::string_view name) {
    const value* found = given.find(place, name);
    require(found && found->is_string(), "argument ", place + 1, " is ", found ? described(*found) : "missing",
            "; it must be a string");
    return found->text();
}

std::int64_t whole_argument(const arguments& given, std::size_t place, std::string_view name, std::int64_t other) {
    const value* found = given.find(place, name);
    if (!found || found->is_none()) return other;
    require(found->is_int() || found->is_bool(), "argument ", place + 1, " is ", described(*found),
            "; it must be a whole number");
    return found->whole();
}

std::optional<value> method_of(const builtin_context& context, const value& of, std::string_view name) {
    const std::string kept(name);
    if (of.is_string() && is_string_method(name))
        return value(function([=](const arguments& given) { return string_method(context, of.text(), kept, given); }));
    if (of.is_list() && is_among(name, {"count", "index"})) {
        return value(function([=](const arguments& given) {
            context.charge(of.items().size());
            return list_method(of, kept, given);
        }));
    }
    const bool is_of_dict = of.is_mapping() && is_among(name, {"items", "keys", "values", "get", "copy"});
    if (!is_of_dict) return {};
    return value(function([=](const arguments& given) {
        context.charge(of.entries().entries.size());
        return dict_method(of, kept, given);
    }));
}

value attribute_of(const builtin_context& context, const value& of, std::string_view name) {
    require(!of.is_undefined(), described(of), " has no attribute ", printable(name));
    if (const auto method = method_of(context, of, name)) return *method;
    if (of.is_dict()) {
        if (const value* found = of.entries().find(name)) return *found;
    }
    return value::undefined{std::string(name)};
}

value element_of(const builtin_context& context, const value& of, const value& key) {
    require(!of.is_undefined(), described(of), " has no elements");
    if (of.is_dict()) {
        if (const value* found = of.entries().find(key)) return *found;
    }
    if (key.is_string()) {
        if (const auto method = method_of(context, of, key.text())) return *method;
        return value::undefined{key.text()};
    }
    if (!(key.is_int() || key.is_bool()) || !(of.is_list() || of.is_string())) return value::undefined{text_of(key)};
    const std::int64_t size = length_of(of), place = key.whole() < 0 ? key.whole() + size : key.whole();
    if (place < 0 || place >= size) return value::undefined{std::to_string(key.whole())};
    if (of.is_list()) return of.items()[static_cast<std::size_t>(place)];
    return characters(of.text())[static_cast<std::size_t>(place)];
}

std::string percent_format(const std::string& format, const list& values) {
    std::string result;
    std::size_t next = 0;
    for (std::size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            result += format[i];
            continue;
        }
        const char kind = ++i < format.size() ? format[i] : '\0';
        if (kind == '%') {
            result += '%';
            continue;
        }
        require(kind == 's' || kind == 'd' || kind == 'r', "% formatting: %s, %d, %r and %% are supported");
        require(next < values.size(), "% formatting: there are ", values.size(), " values, which is too few");
        const value& one = values[next++];
        require(kind != 'd' || one.is_number(), "% formatting: %d needs a number; it is ", described(one));
        result += kind == 's'   ? text_of(one)
                  : kind == 'r' ? repr(one)
                                : std::to_string(static_cast<std::int64_t>(one.real()));
    }
    require(next == values.size(), "% formatting: there are ", values.size(), " values, which is too many");
    return result;
}

bool apply_test(std::string_view name, const value& of, const arguments& given) {
    const auto other = [&] {
        require(given.positional.size() == 1, "test ", printable(name), " needs one argument");
        return given.positional[0];
    };
    if (name == "defined") return !of.is_undefined();
    if (name == "undefined") return of.is_undefined();
    if (name == "none") return of.is_none();
    if (name == "string") return of.is_string();
    if (name == "mapping") return of.is_mapping();
    if (name == "iterable" || name == "sequence")
        return of.is_list() || of.is_string() || of.is_mapping() || of.is_undefined();
    if (name == "number") return of.is_number();
    if (name == "integer") return of.is_int();
    if (name == "float") return of.is_float();
    if (name == "boolean") return of.is_bool();
    if (name == "true") return of.is_bool() && of.whole() == 1;
    if (name == "false") return of.is_bool() && of.whole() == 0;
    if (name == "callable") return of.is_function();
    if (name == "in") return contains(other(), of);
    if (is_among(name, {"eq", "equalto", "=="})) return equal(of, other());
    if (is_among(name, {"ne", "!="})) return !equal(of, other());
    if (is_among(name, {"lt", "lessthan", "<"})) return compare(of, other()) < 0;
    if (is_among(name, {"le", "<="})) return compare(of, other()) <= 0;
    if (is_among(name, {"gt", "greaterthan", ">"})) return compare(of, other()) > 0;
    if (is_among(name, {"ge", ">="})) return compare(of, other()) >= 0;
    if (name == "sameas") return of.is_same(other());
    if (is_among(name, {"odd", "even", "divisibleby"})) {
        const std::int64_t by = name == "divisibleby" ? whole_argument(given, 0, "num", 1) : 2;
        require((of.is_int() || of.is_bool()) && by != 0, "test ", printable(name), ": the value is ", described(of),
                " and the divisor ", by, "; whole numbers are needed");
        const bool divides = by == -1 || of.whole() % by == 0;
        return divides != (name == "odd");
    }
    if (name == "lower" || name == "upper") {
        arguments nothing;
        return is_true(
            string_method({[](std::size_t) {}}, text_of(of), name == "lower" ? "islower" : "isupper", nothing));
    }
    require(false, "there is no test ", printable(name));
    return false;
}

}  // namespace imbrex::engine::jinja
