// Filters, as in Jinja; tojson and from_json as in transformers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <imbrex/core/error.hpp>
#include <map>

#include "engine/chat/bounded_json.hpp"
#include "engine/chat/builtins.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

struct filter_call {
    const builtin_context& context;
    const value& of;
    const arguments& given;
};
using filter = value (*)(const filter_call&);

constexpr std::size_t by_name_only = static_cast<std::size_t>(-1);  // an argument without a place

value call_string_method(const filter_call& call, std::string_view name) {
    return string_method(call.context, text_of(call.of), name, call.given);
}

// "a.b.0" of an item.
value path_of(const filter_call& call, const value& item, const value& path, const value* other = nullptr) {
    const auto step = [&](const value& of, const value& key) {
        value found = element_of(call.context, of, key);
        return found.is_undefined() && other ? *other : found;
    };
    if (!path.is_string()) return step(item, path);
    value found = item;
    std::string_view left = path.text();
    while (true) {
        const std::size_t dot = std::min(left.find('.'), left.size());
        const std::string part(left.substr(0, dot));
        const bool is_index =
            !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
        found = step(found, is_index ? value(std::int64_t{std::stol(part)}) : value(part));
        if (dot == left.size()) return found;
        left.remove_prefix(dot + 1);
    }
}

// The key by which sort, unique, min and max compare: an attribute, and without case unless asked otherwise.
value key_of(const filter_call& call, const value& item, std::size_t place, bool keeps_case) {
    const value* path = call.given.find(place, "attribute");
    value key = path && !path->is_none() ? path_of(call, item, *path) : item;
    if (key.is_string() && !keeps_case) key = string_method(call.context, key.text(), "lower", {});
    return key;
}

value default_of(const filter_call& call) {
    const bool also_false = is_true(call.given.get(1, "boolean", false));
    const bool is_missing = call.of.is_undefined() || (also_false && !is_true(call.of));
    return is_missing ? call.given.get(0, "default_value", "") : call.of;
}

value join(const filter_call& call) {
    const std::string between = call.given.find(0, "d") ? text_of(call.given.get(0, "d", "")) : "";
    const value* path = call.given.find(1, "attribute");
    std::string all;
    bool is_first = true;
    for (const value& item : items_of(call.of)) {
        if (!std::exchange(is_first, false)) all += between;
        all += text_of(path ? path_of(call, item, *path) : item);
        call.context.charge(between.size() + 1);
    }
    call.context.charge(all.size());
    return all;
}

value to_json_filter(const filter_call& call) {
    json_style style;
    style.escapes_non_ascii = is_true(call.given.get(0, "ensure_ascii", false));
    if (const std::int64_t indent = whole_argument(call.given, 1, "indent", -1); indent >= 0) {
        require(indent <= 64, "tojson: indent ", indent, "; at most 64 is allowed");
        style.indent = static_cast<int>(indent);
        style.between = ",";
    }
    if (const value separators = call.given.get(2, "separators", value::none{}); !separators.is_none()) {
        const list both = items_of(separators);
        require(both.size() == 2 && both[0].is_string() && both[1].is_string(),
                "tojson: separators must be two strings");
        style.between = both[0].text();
        style.after_key = both[1].text();
    }
    style.sorts_keys = is_true(call.given.get(3, "sort_keys", false));
    std::string text = to_json(call.of, style);
    call.context.charge(text.size());
    return text;
}

value from_json_filter(const filter_call& call) {
    const auto parsed = parse_bounded_json(text_of(call.of));
    require(parsed.has_value(), "from_json: the text is not JSON, or nests deeper than ", deepest_json, " levels");
    return from_json(*parsed);
}

value indent(const filter_call& call) {
    const value width = call.given.get(0, "width", 4);
    const std::int64_t spaces = width.is_string() ? 0 : whole_argument(call.given, 0, "width", 4);
    require(spaces >= 0 && spaces <= 1000, "indent: ", spaces, " spaces; 0 to 1000 are allowed");
    const std::string before = width.is_string() ? width.text() : std::string(static_cast<std::size_t>(spaces), ' ');
    const bool also_first = is_true(call.given.get(1, "first", false)),
               also_blank = is_true(call.given.get(2, "blank", false));
    const std::string text = text_of(call.of);
    std::string all;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const bool is_indented = begin == 0 ? also_first : also_blank || end > begin;
        if (begin > 0) all += '\n';
        all += (is_indented ? before : "") + text.substr(begin, end - begin);
        call.context.charge(before.size() + 1);
        begin = end + 1;
    }
    return all;
}

value first_or_last(const filter_call& call, bool last) {
    const list items = items_of(call.of);
    if (items.empty())
        return value::undefined{last ? "the last item of an empty list" : "the first item of an empty list"};
    return last ? items.back() : items.front();
}

value to_int(const filter_call& call) {
    const value other = call.given.get(0, "default", 0);
    if (call.of.is_int() || call.of.is_bool()) return call.of.whole();
    double number = 0;
    if (call.of.is_float()) {
        number = call.of.real();
    } else if (call.of.is_string()) {
        const std::string text(stripped(call.of.text(), true, true));
        const char* end = text.data() + text.size();
        std::int64_t whole = 0;
        const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
        if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc() && read.ptr == end)
            return whole;
        if (const auto read = std::from_chars(begin, end, number); read.ec != std::errc() || read.ptr != end)
            return other;
    } else {
        return other;
    }
    return std::abs(number) < 9.2e18 ? value(static_cast<std::int64_t>(number)) : other;
}

value to_float(const filter_call& call) {
    if (call.of.is_number()) return call.of.real();
    const value other = call.given.get(0, "default", 0.0);
    if (!call.of.is_string()) return other;
    const std::string text(stripped(call.of.text(), true, true));
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    return read.ec == std::errc() && read.ptr == text.data() + text.size() ? value(number) : other;
}

value round(const filter_call& call) {
    require(call.of.is_number(), "round: the value is ", described(call.of), "; it must be a number");
    const std::int64_t digits = whole_argument(call.given, 0, "precision", 0);
    const std::string method = text_of(call.given.get(1, "method", "common"));
    require(method == "common" || method == "ceil" || method == "floor", "round: method ", printable(method),
            "; common, ceil and floor are known");
    require(digits >= -15 && digits <= 15, "round: precision ", digits, "; -15 to 15 are allowed");
    const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = call.of.real() * scale;
    const double rounded = method == "ceil"    ? std::ceil(scaled)
                           : method == "floor" ? std::floor(scaled)
                                               : std::nearbyint(scaled);
    return rounded / scale;
}

value sort(const filter_call& call) {
    list items = items_of(call.of);
    const bool keeps_case = is_true(call.given.get(1, "case_sensitive", false));
    std::vector<std::pair<value, value>> keyed;
    for (value& item : items) keyed.emplace_back(key_of(call, item, 2, keeps_case), item);
    const bool reversed = is_true(call.given.get(0, "reverse", false));
    std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
        return reversed ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
    });
    list sorted;
    for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
    return sorted;
}

value dictsort(const filter_call& call) {
    require(call.of.is_dict(), "dictsort: the value is ", described(call.of), "; it must be a mapping");
    const bool keeps_case = is_true(call.given.get(0, "case_sensitive", false));
    const bool by_value = text_of(call.given.get(1, "by", "key")) == "value",
               reversed = is_true(call.given.get(2, "reverse", false));
    std::vector<std::pair<value, value>> keyed;
    for (const auto& [key, content] : call.of.entries().entries) {
        value by = by_value ? content : key;
        if (by.is_string() && !keeps_case) by = string_method(call.context, by.text(), "lower", {});
        keyed.emplace_back(std::move(by), value::tuple({key, content}));
    }
    std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
        return reversed ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
    });
    list sorted;
    for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
    return sorted;
}

value unique(const filter_call& call) {
    const bool keeps_case = is_true(call.given.get(0, "case_sensitive", false));
    list kept, seen;
    for (const value& item : items_of(call.of)) {
        value key = key_of(call, item, 1, keeps_case);
        call.context.charge(seen.size());
        if (contains(seen, key)) continue;
        seen.push_back(std::move(key));
        kept.push_back(item);
    }
    return kept;
}

value extreme(const filter_call& call, bool greatest) {
    const bool keeps_case = is_true(call.given.get(0, "case_sensitive", false));
    const list items = items_of(call.of);
    value best = value::undefined{"an item of an empty list"}, best_key;
    for (const value& item : items) {
        value key = key_of(call, item, 1, keeps_case);
        const bool is_better =
            best.is_undefined() || (greatest ? compare(key, best_key) > 0 : compare(key, best_key) < 0);
        if (!is_better) continue;
        best = item;
        best_key = std::move(key);
    }
    return best;
}

value sum(const filter_call& call) {
    const value* path = call.given.find(0, "attribute");
    value all = call.given.get(1, "start", 0);
    for (const value& item : items_of(call.of)) {
        const value one = path && !path->is_none() ? path_of(call, item, *path) : item;
        require(one.is_number() && all.is_number(), "sum: an item is ", described(one), "; numbers are needed");
        const bool is_real = one.is_float() || all.is_float();
        all = is_real ? value(one.real() + all.real()) : value(one.whole() + all.whole());
    }
    return all;
}

// select, reject, selectattr and rejectattr: (attribute,) test and its arguments.
value selected(const filter_call& call, bool by_attribute, bool keeps) {
    const std::size_t first = by_attribute ? 1 : 0;
    require(call.given.positional.size() >= first, "the attribute is missing");
    arguments rest;
    for (std::size_t i = first + 1; i < call.given.positional.size(); ++i)
        rest.positional.push_back(call.given.positional[i]);
    list kept;
    if (!is_true(call.of)) return kept;
    for (const value& item : items_of(call.of)) {
        const value tested = by_attribute ? path_of(call, item, call.given.positional[0]) : item;
        const bool holds = call.given.positional.size() > first
                               ? apply_test(text_argument(call.given, first, "test"), tested, rest)
                               : is_true(tested);
        if (holds == keeps) kept.push_back(item);
        call.context.charge(1);
    }
    return kept;
}

value map(const filter_call& call) {
    list all;
    if (!is_true(call.of)) return all;
    if (const value* path = call.given.find(by_name_only, "attribute")) {
        const value* other = call.given.find(by_name_only, "default");
        for (const value& item : items_of(call.of)) all.push_back(path_of(call, item, *path, other));
        return all;
    }
    const std::string name = text_argument(call.given, 0, "filter");
    arguments rest{{call.given.positional.begin() + 1, call.given.positional.end()}, call.given.named};
    for (const value& item : items_of(call.of)) all.push_back(apply_filter(call.context, name, item, rest));
    return all;
}

value items(const filter_call& call) {
    if (call.of.is_undefined()) return list{};
    require(call.of.is_dict(), "items: the value is ", described(call.of), "; it must be a mapping");
    return method_of(call.context, call.of, "items")->call()({});
}

value reverse(const filter_call& call) {
    list all = items_of(call.of);
    std::ranges::reverse(all);
    if (!call.of.is_string()) return all;
    std::string text;
    for (const value& character : all) text += character.text();
    return text;
}

value escape(const filter_call& call) {
    return call.of.is_safe() ? call.of : value::safe(html_escaped(text_of(call.of)));
}

value absolute(const filter_call& call) {
    require(call.of.is_number(), "abs: the value is ", described(call.of), "; it must be a number");
    return call.of.is_float() ? value(std::abs(call.of.real()))
                              : value(call.of.whole() < 0 ? -call.of.whole() : call.of.whole());
}

value batch(const filter_call& call) {
    const std::int64_t size = whole_argument(call.given, 0, "linecount", 0);
    require(size > 0, "batch: ", size, " items; at least 1 is needed");
    list all, part;
    for (const value& item : items_of(call.of)) {
        part.push_back(item);
        if (static_cast<std::int64_t>(part.size()) == size) all.emplace_back(std::exchange(part, {}));
    }
    if (!part.empty()) all.emplace_back(std::move(part));
    return all;
}

const std::map<std::string_view, filter>& filters() {
    static const std::map<std::string_view, filter> all{
        {"abs", absolute},
        {"attr",
         [](const filter_call& call) {
             return attribute_of(call.context, call.of, text_argument(call.given, 0, "name"));
         }},
        {"batch", batch},
        {"capitalize", [](const filter_call& call) { return call_string_method(call, "capitalize"); }},
        {"count", [](const filter_call& call) { return value(length_of(call.of)); }},
        {"d", default_of},
        {"default", default_of},
        {"dictsort", dictsort},
        {"e", escape},
        {"escape", escape},
        {"first", [](const filter_call& call) { return first_or_last(call, false); }},
        {"float", to_float},
        {"format",
         [](const filter_call& call) { return value(percent_format(text_of(call.of), call.given.positional)); }},
        {"from_json", from_json_filter},
        {"indent", indent},
        {"int", to_int},
        {"items", items},
        {"join", join},
        {"last", [](const filter_call& call) { return first_or_last(call, true); }},
        {"length", [](const filter_call& call) { return value(length_of(call.of)); }},
        {"list", [](const filter_call& call) { return value(items_of(call.of)); }},
        {"lower", [](const filter_call& call) { return call_string_method(call, "lower"); }},
        {"map", map},
        {"max", [](const filter_call& call) { return extreme(call, true); }},
        {"min", [](const filter_call& call) { return extreme(call, false); }},
        {"reject", [](const filter_call& call) { return selected(call, false, false); }},
        {"rejectattr", [](const filter_call& call) { return selected(call, true, false); }},
        {"replace", [](const filter_call& call) { return call_string_method(call, "replace"); }},
        {"reverse", reverse},
        {"round", round},
        {"safe", [](const filter_call& call) { return value::safe(text_of(call.of)); }},
        {"select", [](const filter_call& call) { return selected(call, false, true); }},
        {"selectattr", [](const filter_call& call) { return selected(call, true, true); }},
        {"sort", sort},
        {"string", [](const filter_call& call) { return value(text_of(call.of)); }},
        {"sum", sum},
        {"title", [](const filter_call& call) { return call_string_method(call, "title"); }},
        {"tojson", to_json_filter},
        {"trim", [](const filter_call& call) { return call_string_method(call, "strip"); }},
        {"unique", unique},
        {"upper", [](const filter_call& call) { return call_string_method(call, "upper"); }},
        {"wordcount",
         [](const filter_call& call) {
             return value(length_of(string_method(call.context, text_of(call.of), "split", {})));
         }},
    };
    return all;
}

}  // namespace

value apply_filter(const builtin_context& context, std::string_view name, const value& of, const arguments& given) {
    const auto found = filters().find(name);
    require(found != filters().end(), "there is no filter ", printable(name));
    return found->second({context, of, given});
}

}  // namespace imbrex::engine::jinja
