#include "engine/chat/value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <imbrex/core/error.hpp>

#include "engine/tokenizer/unicode.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

void check_depth(int depth) {
    require(depth < deepest, "a value is nested more than ", deepest, " deep");
}

// The shortest digits that give the number back, as Python prints them.
std::string text_of_real(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    char digits[40];
    const double size = std::abs(number);
    const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
    const auto end = is_plain ? std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed)
                              : std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific);
    std::string text(digits, end.ptr);
    if (is_plain && text.find('.') == std::string::npos) text += ".0";
    return text;
}

std::string quoted(const std::string& text) {
    const bool doubles = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
    const char quote = doubles ? '"' : '\'';
    std::string result(1, quote);
    for (const char letter : text) {
        char escape[8];
        if (letter == quote || letter == '\\') {
            result += std::string("\\") + letter;
        } else if (letter == '\n' || letter == '\r' || letter == '\t') {
            result += letter == '\n' ? "\\n" : letter == '\r' ? "\\r" : "\\t";
        } else if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) {
            std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned>(letter));
            result += escape;
        } else {
            result += letter;
        }
    }
    return result + quote;
}

std::string json_string(std::string_view text, bool escapes_non_ascii) {
    std::string result = "\"";
    char escape[16];
    while (!text.empty()) {
        const code_point next = first_code_point(text);
        const std::string_view bytes = text.substr(0, static_cast<std::size_t>(next.length));
        text.remove_prefix(bytes.size());
        constexpr std::string_view plain = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
        const std::size_t place =
            next.value < 0x80 ? plain.find(static_cast<char>(next.value)) : std::string_view::npos;
        if (place != std::string_view::npos) {
            result += std::string("\\") + letters[place];
        } else if (next.value < 0x20 || (escapes_non_ascii && next.value >= 0x80 && next.value < 0x10000)) {
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(next.value));
            result += escape;
        } else if (escapes_non_ascii && next.value >= 0x10000) {
            const auto rest = static_cast<unsigned>(next.value - 0x10000);
            std::snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
            result += escape;
        } else {
            result += bytes;
        }
    }
    return result + "\"";
}

}  // namespace

value::value(list items) : value(from_list(std::move(items), false)) {}
value value::tuple(list items) {
    return from_list(std::move(items), true);
}
value value::from_list(list items, bool is_tuple) {
    int most = 0;
    for (const value& item : items) most = std::max(most, item.nesting());
    check_depth(most + 1);
    value made;
    made.content_ = std::make_shared<const list_block>(list_block{std::move(items), most + 1, is_tuple});
    return made;
}
value::value(dict entries) {
    for (const auto& [key, content] : entries.entries) entries.nesting = std::max(entries.nesting, content.nesting());
    check_depth(++entries.nesting);
    content_ = std::make_shared<dict>(std::move(entries));
}
value::value(function call) : content_(std::make_shared<function>(std::move(call))) {}

bool value::is_mapping() const {
    return is_dict() && entries().is == dict::role::mapping;
}
bool value::is_namespace() const {
    return is_dict() && entries().is == dict::role::name_space;
}

int value::nesting() const {
    if (is_list()) return std::get<std::shared_ptr<const list_block>>(content_)->nesting;
    return is_mapping() ? entries().nesting : 0;
}

std::int64_t value::whole() const {
    return is_bool() ? std::int64_t{std::get<bool>(content_)} : std::get<std::int64_t>(content_);
}

double value::real() const {
    return is_float() ? std::get<double>(content_) : static_cast<double>(whole());
}

bool value::is_same(const value& other) const {
    if (content_.index() != other.content_.index()) return false;
    if (is_list()) return &items() == &other.items();
    if (is_dict()) return &entries() == &other.entries();
    if (is_function()) return &call() == &other.call();
    return equal(*this, other);
}

value value::safe(std::string text) {
    value made;
    made.content_ = std::make_shared<const text_block>(text_block{std::move(text), true});
    return made;
}

const value* dict::find(std::string_view key) const {
    for (const auto& [name, content] : entries) {
        if (name.is_string() && name.text() == key) return &content;
    }
    return nullptr;
}

const value* dict::find(const value& key) const {
    for (const auto& [name, content] : entries) {
        if (equal(name, key)) return &content;
    }
    return nullptr;
}

void dict::set(const value& key, value content) {
    if (value* old = const_cast<value*>(find(key))) {
        *old = std::move(content);
    } else {
        entries.emplace_back(key, std::move(content));
    }
}

const value* arguments::find(std::size_t place, std::string_view name) const {
    if (place < positional.size()) return &positional[place];
    for (const auto& [key, content] : named) {
        if (key == name) return &content;
    }
    return nullptr;
}

value arguments::get(std::size_t place, std::string_view name, value other) const {
    const value* found = find(place, name);
    return found ? *found : std::move(other);
}

std::string described(const value& of) {
    if (of.is_undefined())
        return of.undefined_name().empty() ? "undefined" : printable(of.undefined_name()) + ", which is undefined";
    if (of.is_none()) return "none";
    if (of.is_bool()) return "a boolean";
    if (of.is_number()) return "a number";
    if (of.is_string()) return "a string";
    if (of.is_list()) return "a list";
    return of.is_dict() ? "a mapping" : "a function";
}

bool is_true(const value& of) {
    if (of.is_number()) return of.real() != 0;
    if (of.is_string()) return !of.text().empty();
    if (of.is_list()) return !of.items().empty();
    if (of.is_dict()) return !of.is_mapping() || !of.entries().entries.empty();
    return of.is_function();
}

bool equal(const value& left, const value& right, int depth) {
    check_depth(depth);
    if (left.is_int() && right.is_int()) return left.whole() == right.whole();
    if (left.is_number() && right.is_number()) return left.real() == right.real();
    if (left.is_string() && right.is_string()) return left.text() == right.text();
    if (left.is_list() && right.is_list()) {
        return left.is_tuple() == right.is_tuple() &&
               std::ranges::equal(left.items(), right.items(),
                                  [&](const value& a, const value& b) { return equal(a, b, depth + 1); });
    }
    if (left.is_dict() && right.is_dict()) {
        const dict &a = left.entries(), &b = right.entries();
        if (&a == &b) return true;
        if (!left.is_mapping() || !right.is_mapping() || a.entries.size() != b.entries.size()) return false;
        return std::ranges::all_of(a.entries, [&](const auto& entry) {
            const value* other = b.find(entry.first);
            return other && equal(entry.second, *other, depth + 1);
        });
    }
    if (left.is_function() && right.is_function()) return left.is_same(right);
    return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

int compare(const value& left, const value& right, int depth) {
    check_depth(depth);
    if (left.is_number() && right.is_number()) {
        if (!left.is_float() && !right.is_float())
            return left.whole() < right.whole() ? -1 : left.whole() > right.whole();
        return left.real() < right.real() ? -1 : left.real() > right.real();
    }
    if (left.is_string() && right.is_string()) return left.text().compare(right.text());
    const bool are_lists = left.is_list() && right.is_list();
    require(are_lists, described(left), " and ", described(right), " have no order");
    const list &a = left.items(), &b = right.items();
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
        if (!equal(a[i], b[i])) return compare(a[i], b[i], depth + 1);
    }
    return a.size() < b.size() ? -1 : a.size() > b.size();
}

std::string text_of(const value& of) {
    if (of.is_string()) return of.text();
    return of.is_undefined() ? std::string() : repr(of);
}

std::string html_escaped(std::string_view text) {
    std::string all;
    for (const char letter : text) {
        constexpr std::string_view letters = "&<>\"'";
        constexpr const char* names[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
        const std::size_t found = letters.find(letter);
        all += found == std::string_view::npos ? std::string(1, letter) : names[found];
    }
    return all;
}

std::string repr(const value& of, int depth) {
    check_depth(depth);
    if (of.is_string()) return quoted(of.text());
    if (of.is_undefined()) return "Undefined";
    if (of.is_none()) return "None";
    if (of.is_bool()) return of.whole() ? "True" : "False";
    if (of.is_int()) return std::to_string(of.whole());
    if (of.is_float()) return text_of_real(of.real());
    if (of.is_function()) return "<function>";
    std::string text;
    if (of.is_list()) {
        for (const value& item : of.items()) text += (text.empty() ? "" : ", ") + repr(item, depth + 1);
        if (of.is_tuple()) return "(" + text + (of.items().size() == 1 ? ",)" : ")");
        return "[" + text + "]";
    }
    for (const auto& [key, content] : of.entries().entries)
        text += (text.empty() ? "" : ", ") + repr(key) + ": " + repr(content, depth + 1);
    return "{" + text + "}";
}

std::string to_json(const value& of, const json_style& style, int depth) {
    check_depth(depth);
    if (of.is_string()) return json_string(of.text(), style.escapes_non_ascii);
    if (of.is_none()) return "null";
    if (of.is_bool()) return of.whole() ? "true" : "false";
    if (of.is_float() && !std::isfinite(of.real()))
        return std::isnan(of.real()) ? "NaN" : of.real() < 0 ? "-Infinity" : "Infinity";
    if (of.is_number()) return repr(of);
    require(of.is_list() || of.is_dict(), "tojson: ", described(of), " cannot be written as JSON");
    const auto new_line = [&](int steps) {
        std::string line;
        if (style.indent) line.append(1, '\n').append(static_cast<std::size_t>(*style.indent * steps), ' ');
        return line;
    };
    std::string text;
    const auto add = [&](const std::string& item) {
        text += (text.empty() ? "" : style.between) + new_line(depth + 1) + item;
    };
    if (of.is_list()) {
        for (const value& item : of.items()) add(to_json(item, style, depth + 1));
        return text.empty() ? "[]" : "[" + text + new_line(depth) + "]";
    }
    auto entries = of.entries().entries;
    if (style.sorts_keys) {
        std::ranges::sort(entries, [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    }
    for (const auto& [key, content] : entries)
        add(json_string(key.is_string() ? key.text() : to_json(key, style), style.escapes_non_ascii) + style.after_key +
            to_json(content, style, depth + 1));
    return text.empty() ? "{}" : "{" + text + new_line(depth) + "}";
}

value from_json(const nlohmann::ordered_json& json, int depth) {
    check_depth(depth);
    if (json.is_null()) return value::none{};
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return json.get<std::int64_t>();
    if (json.is_number()) return json.get<double>();
    if (json.is_string()) return json.get<std::string>();
    if (json.is_array()) {
        list all;
        for (const auto& item : json) all.push_back(from_json(item, depth + 1));
        return all;
    }
    dict all;
    for (const auto& [key, content] : json.items()) all.entries.emplace_back(key, from_json(content, depth + 1));
    return all;
}

list items_of(const value& of) {
    if (of.is_list()) return of.items();
    list all;
    if (of.is_string()) {
        for (const std::string_view character : characters(of.text())) all.emplace_back(character);
    } else if (of.is_dict()) {
        for (const auto& entry : of.entries().entries) all.emplace_back(entry.first);
    } else {
        require(of.is_undefined(), "a loop over ", described(of), "; a list, a mapping or a string is needed");
    }
    return all;
}

std::int64_t length_of(const value& of) {
    if (of.is_undefined()) return 0;
    if (of.is_string()) return static_cast<std::int64_t>(characters(of.text()).size());
    if (of.is_list()) return static_cast<std::int64_t>(of.items().size());
    require(of.is_dict(), described(of), " has no length");
    return static_cast<std::int64_t>(of.entries().entries.size());
}

bool contains(const value& whole, const value& part) {
    if (whole.is_string()) {
        require(part.is_string(), "\"in\" a string needs a string on the left; it is ", described(part));
        return whole.text().find(part.text()) != std::string::npos;
    }
    if (whole.is_list())
        return std::ranges::any_of(whole.items(), [&](const value& item) { return equal(item, part); });
    if (whole.is_undefined()) return false;
    require(whole.is_dict(), "\"in\" needs a list, a mapping or a string on the right; it is ", described(whole));
    return whole.entries().find(part) != nullptr;
}

std::vector<std::string_view> characters(std::string_view text) {
    std::vector<std::string_view> all;
    while (!text.empty()) {
        const auto length = static_cast<std::size_t>(first_code_point(text).length);
        all.push_back(text.substr(0, length));
        text.remove_prefix(length);
    }
    return all;
}

bool is_space_at(std::string_view character) {
    const code_point next = first_code_point(character);
    return next.valid && (is_white_space(next.value) || (next.value >= 0x1c && next.value <= 0x1f));
}

std::string_view stripped(std::string_view text, bool left, bool right, std::optional<std::string_view> which) {
    const auto all = characters(text);
    const auto goes = [&](std::string_view character) {
        return which ? which->find(character) != std::string_view::npos : is_space_at(character);
    };
    std::size_t first = 0, last = all.size();
    while (left && first < last && goes(all[first])) ++first;
    while (right && last > first && goes(all[last - 1])) --last;
    if (first == last) return {};
    return {all[first].data(),
            static_cast<std::size_t>(all[last - 1].data() + all[last - 1].size() - all[first].data())};
}

}  // namespace imbrex::engine::jinja
