// Methods of strings, as in Python. Case changes are those of ASCII letters.
#include <algorithm>
#include <array>
#include <imbrex/core/error.hpp>

#include "engine/chat/builtins.hpp"
#include "engine/tokenizer/unicode.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

char lower(char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
}
char upper(char letter) {
    return letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 32) : letter;
}
bool is_letter(char letter) {
    return upper(letter) != lower(letter);
}

template <class Change>
std::string changed(std::string text, const Change& change) {
    std::ranges::transform(text, text.begin(), change);
    return text;
}

std::string title(std::string text) {
    bool inside = false;
    for (char& letter : text) {
        letter = inside ? lower(letter) : upper(letter);
        inside = is_letter(letter) || (letter & 0x80);
    }
    return text;
}

std::string capitalised(std::string text) {
    text = changed(std::move(text), lower);
    if (!text.empty()) text[0] = upper(text[0]);
    return text;
}

list split_at(std::string_view text, std::string_view separator, std::int64_t most, bool from_right) {
    require(!separator.empty(), "split: the separator is empty");
    list parts;
    while (most != 0) {
        const std::size_t place = from_right ? text.rfind(separator) : text.find(separator);
        if (place == std::string_view::npos) break;
        const std::string_view left = text.substr(0, place), right = text.substr(place + separator.size());
        parts.emplace_back(from_right ? right : left);
        text = from_right ? left : right;
        --most;
    }
    parts.emplace_back(text);
    if (from_right) std::ranges::reverse(parts);
    return parts;
}

// At white space, which may be of any length.
list split_words(std::string_view text, std::int64_t most) {
    list parts;
    text = stripped(text, true, false);
    while (!text.empty()) {
        std::size_t length = 0;
        while (most != 0 && length < text.size() && !is_space_at(text.substr(length))) {
            length += static_cast<std::size_t>(first_code_point(text.substr(length)).length);
        }
        if (most-- == 0) length = text.size();
        parts.emplace_back(text.substr(0, length));
        text = stripped(text.substr(length), true, false);
    }
    return parts;
}

list split_lines(std::string_view text, bool keeps_ends) {
    list parts;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of("\r\n"), text.size());
        std::size_t next = std::min(end + 1, text.size());
        if (text.substr(end).starts_with("\r\n")) ++next;
        parts.emplace_back(text.substr(0, keeps_ends ? next : end));
        text.remove_prefix(next);
    }
    return parts;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most) {
    std::string result;
    if (from.empty()) {
        for (const std::string_view character : characters(text)) {
            if (most-- != 0) result += to;
            result += character;
        }
        return most != 0 ? result.append(to) : result;
    }
    while (most-- != 0) {
        const std::size_t place = text.find(from);
        if (place == std::string_view::npos) break;
        result.append(text.substr(0, place)).append(to);
        text.remove_prefix(place + from.size());
    }
    return result.append(text);
}

// The place of a part in code points; -1 if it is not there.
std::int64_t place_of(const std::string& text, const std::string& part, bool last) {
    const std::size_t place = last ? text.rfind(part) : text.find(part);
    if (place == std::string::npos) return -1;
    return static_cast<std::int64_t>(characters(std::string_view(text).substr(0, place)).size());
}

bool starts_or_ends(const std::string& text, const value& part, bool ends) {
    if (part.is_list()) {
        return std::ranges::any_of(part.items(), [&](const value& one) { return starts_or_ends(text, one, ends); });
    }
    require(part.is_string(), ends ? "endswith" : "startswith", ": the argument is ", described(part),
            "; a string or a tuple of strings is needed");
    return ends ? text.ends_with(part.text()) : text.starts_with(part.text());
}

// "{} and {name}".format(...)
std::string formatted(const std::string& format, const arguments& given) {
    std::string result;
    std::size_t next = 0;
    for (std::size_t i = 0; i < format.size(); ++i) {
        const char letter = format[i];
        if ((letter == '{' || letter == '}') && i + 1 < format.size() && format[i + 1] == letter) {
            result += format[++i];
            continue;
        }
        require(letter != '}', "format: a single } in the string");
        if (letter != '{') {
            result += letter;
            continue;
        }
        const std::size_t end = format.find('}', i);
        require(end != std::string::npos, "format: { is not closed");
        const std::string field = format.substr(i + 1, end - i - 1);
        i = end;
        const bool is_number = field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6;
        require(is_number || field.find_first_of(":!.[") == std::string::npos, "format: the field ", printable(field),
                " is not supported; {}, {0} and {name} are");
        const value* found = is_number ? given.find(field.empty() ? next++ : std::stoul(field), "")
                                       : given.find(given.positional.size(), field);
        require(found != nullptr, "format: there is no argument for {", field, "}");
        result += text_of(*found);
    }
    return result;
}

template <class Test>
bool all_are(std::string_view text, const Test& test) {
    const auto all = characters(text);
    return !all.empty() && std::ranges::all_of(all, [&](std::string_view character) {
        const code_point next = first_code_point(character);
        return next.valid && test(1u << static_cast<unsigned>(category_of(next.value)));
    });
}

list partitioned(const std::string& text, const std::string& separator, bool last) {
    const std::size_t place = last ? text.rfind(separator) : text.find(separator);
    if (place == std::string::npos) return last ? list{"", "", text} : list{text, "", ""};
    return {text.substr(0, place), separator, text.substr(place + separator.size())};
}

constexpr std::array<std::string_view, 34> names{
    "strip",        "lstrip",    "rstrip",     "split",     "rsplit",     "splitlines", "startswith",
    "endswith",     "upper",     "lower",      "title",     "capitalize", "replace",    "find",
    "rfind",        "index",     "count",      "join",      "format",     "isdigit",    "isalpha",
    "isalnum",      "isspace",   "isupper",    "islower",   "isdecimal",  "zfill",      "removeprefix",
    "removesuffix", "partition", "rpartition", "isnumeric", "ljust",      "rjust"};

value padded(const std::string& text, std::string_view name, const arguments& given, const builtin_context& context) {
    const std::int64_t width = whole_argument(given, 0, "width", 0), length = length_of(text);
    if (width <= length) return text;
    const auto missing = static_cast<std::size_t>(width - length);
    context.charge(missing);
    if (name == "zfill") {
        const bool has_sign = text.starts_with('-') || text.starts_with('+');
        return text.substr(0, has_sign) + std::string(missing, '0') + text.substr(has_sign);
    }
    const std::string fill = given.find(1, "fillchar") ? text_argument(given, 1, "fillchar") : " ";
    require(fill.size() == 1, name == "ljust" ? "ljust" : "rjust", ": the character to fill with is ", printable(fill));
    const std::string space(missing, fill[0]);
    return name == "ljust" ? text + space : space + text;
}

value tested(const std::string& text, std::string_view name) {
    const auto named = [](const char* category) { return *categories_named(category); };
    if (name == "isdigit" || name == "isdecimal") return all_are(text, [&](auto one) { return one & named("Nd"); });
    if (name == "isnumeric") return all_are(text, [&](auto one) { return one & named("N"); });
    if (name == "isalpha") return all_are(text, [&](auto one) { return one & named("L"); });
    if (name == "isalnum") return all_are(text, [&](auto one) { return one & (named("L") | named("N")); });
    if (name == "isspace") return !text.empty() && stripped(text, true, true).empty();
    const bool has_case = std::ranges::any_of(text, is_letter);
    return has_case && text == changed(text, name == "isupper" ? upper : lower);
}

}  // namespace

bool is_string_method(std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

value string_method(const builtin_context& context, const std::string& text, std::string_view name,
                    const arguments& given) {
    context.charge(text.size());
    if (name == "strip" || name == "lstrip" || name == "rstrip") {
        const value which = given.get(0, "chars", value::none{});
        if (which.is_none()) return stripped(text, name != "rstrip", name != "lstrip");
        return stripped(text, name != "rstrip", name != "lstrip", text_argument(given, 0, "chars"));
    }
    if (name == "split" || name == "rsplit") {
        const std::int64_t most = whole_argument(given, 1, "maxsplit", -1);
        const value separator = given.get(0, "sep", value::none{});
        if (!separator.is_none()) return split_at(text, text_argument(given, 0, "sep"), most, name == "rsplit");
        require(name == "split" || most < 0, "rsplit without a separator and with a limit is not supported");
        return split_words(text, most);
    }
    if (name == "splitlines") return split_lines(text, is_true(given.get(0, "keepends", false)));
    if (name == "startswith" || name == "endswith")
        return starts_or_ends(text, given.get(0, "prefix", value()), name == "endswith");
    if (name == "upper") return changed(text, upper);
    if (name == "lower") return changed(text, lower);
    if (name == "title") return title(text);
    if (name == "capitalize") return capitalised(text);
    if (name == "replace") {
        const std::string from = text_argument(given, 0, "old"), to = text_argument(given, 1, "new");
        context.charge(text.size() * (to.size() / std::max<std::size_t>(from.size(), 1) + 1));
        return replaced(text, from, to, whole_argument(given, 2, "count", -1));
    }
    if (name == "find" || name == "rfind" || name == "index") {
        const std::int64_t place = place_of(text, text_argument(given, 0, "sub"), name == "rfind");
        require(place >= 0 || name != "index", "index: the substring is not there");
        return place;
    }
    if (name == "count") {
        const std::string part = text_argument(given, 0, "sub");
        return static_cast<std::int64_t>(part.empty() ? characters(text).size() + 1
                                                      : split_at(text, part, -1, false).size() - 1);
    }
    if (name == "join") {
        std::string all;
        bool is_first = true;
        for (const value& item : items_of(given.get(0, "iterable", value()))) {
            require(item.is_string(), "join: an item is ", described(item), "; strings are needed");
            if (!std::exchange(is_first, false)) all += text;
            all += item.text();
        }
        context.charge(all.size());
        return all;
    }
    if (name == "format") return formatted(text, given);
    if (name == "removeprefix" || name == "removesuffix") {
        const std::string part = text_argument(given, 0, "part");
        if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
        return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
    }
    if (name == "partition" || name == "rpartition")
        return partitioned(text, text_argument(given, 0, "sep"), name == "rpartition");
    if (name == "zfill" || name == "ljust" || name == "rjust") return padded(text, name, given, context);
    return tested(text, name);
}

}  // namespace imbrex::engine::jinja
