#include "engine/chat/globals.hpp"

#include <imbrex/core/error.hpp>

#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::jinja {

namespace {

constexpr std::size_t longest_range = 100'000;

value formatted_time(const std::tm& now, const arguments& given) {
    char text[256];
    const std::string format = text_argument(given, 0, "format");
    const std::size_t length = std::strftime(text, sizeof text, format.c_str(), &now);
    require(length > 0 || format.empty(), "strftime_now: the result of ", printable(format),
            " is longer than 255 bytes");
    return std::string(text, length);
}

dict made_of(const arguments& given, const char* what) {
    dict made;
    for (const value& one : given.positional) {
        require(one.is_mapping(), what, ": an argument is ", described(one), "; mappings are allowed");
        for (const auto& [key, content] : one.entries().entries) made.set(key, content);
    }
    for (const auto& [key, content] : given.named) made.set(key, content);
    return made;
}

value range(const builtin_context& context, const arguments& given) {
    const bool has_start = given.positional.size() > 1;
    const std::int64_t start = has_start ? whole_argument(given, 0, "start", 0) : 0;
    const std::int64_t stop = whole_argument(given, has_start ? 1 : 0, "stop", 0);
    const std::int64_t step = whole_argument(given, 2, "step", 1);
    require(step != 0, "range: the step is 0");
    list all;
    for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
        context.charge(1);
        require(all.size() < longest_range, "range: more than ", longest_range, " numbers");
        all.emplace_back(i);
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return all;
}

}  // namespace

std::vector<std::pair<std::string, value>> global_functions(const builtin_context& context, const std::tm& now,
                                                            std::vector<value>& namespaces) {
    const auto raise = [](const arguments& given) -> value {
        throw invalid_argument(text_of(given.get(0, "message", "raise_exception")));
    };
    const auto make_namespace = [&](const arguments& given) {
        dict made = made_of(given, "namespace");
        made.is = dict::role::name_space;
        context.charge(made.entries.size() + 1);
        return namespaces.emplace_back(std::move(made));
    };
    return {{"raise_exception", function(raise)},
            {"strftime_now", function([&now](const arguments& given) { return formatted_time(now, given); })},
            {"namespace", function(make_namespace)},
            {"dict", function([](const arguments& given) { return value(made_of(given, "dict")); })},
            {"range", function([&context](const arguments& given) { return range(context, given); })}};
}

}  // namespace imbrex::engine::jinja
