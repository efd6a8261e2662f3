// Regular expressions as constraints: texts that they allow and do not allow, and what they refuse.
#include <string>
#include <vector>

#include "engine/grammar/support.hpp"

using namespace imbrex::engine;
using namespace imbrex::engine::test;

namespace {

struct regex_case {
    std::string regex;
    std::vector<std::string> allowed, refused;
};

std::string error_of(const std::string& regex) {
    try {
        constrain_to_regex(regex, bytes_trie());
    } catch (const std::exception& failure) {
        return failure.what();
    }
    return "no error";
}

}  // namespace

TEST_CASE("Texts of regular expressions") {
    const std::vector<regex_case> cases{
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"", {""}, {"a"}},
        {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
        {"^(?:a|b)+$", {"a", "abba"}, {"", "abc"}},
        {"^a|b$", {"a", "b"}, {"ab"}},
        {"(a*b){2,3}", {"bb", "aabab", "bbb"}, {"b", "bbbb", "a"}},
        {"a{3}b{2,}c{0,1}", {"aaabb", "aaabbbbc"}, {"aabb", "aaab", "aaabbcc"}},
        {"x*?y+?z??", {"y", "xxyyz"}, {"x", "yzz"}},
        {"[a-c^\\]-]", {"a", "b", "^", "]", "-"}, {"d", "\\"}},
        {"[^a-y\\n]", {"z", "A", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"m", "\n", "\xc3", "\xff"}},
        {"\\d{4}-\\d\\d",
         {"2024-01"},
         {"2024-1",
          "\xd9\xa3"
          "024-01"}},
        {"[\\w.]+\\s\\S\\W\\D", {"a_b.9 x-y"}, {"a-b x-y"}},
        {".", {"a", "\xe2\x82\xac"}, {"\n", "\xe2\x82", "\xed\xa0\x80", "\xc0\x80"}},
        {"\\x41\\u00e9\\u{1F600}\\t\\.", {"A\xc3\xa9\xf0\x9f\x98\x80\t."}, {"A"}},
        {"(?<year>\\d+)(b)", {"12b"}, {"b"}},
        {"[\\u0370-\\u03ff]+", {"\xcf\x80", "\xcd\xb0\xcf\xbf"}, {"p", "\xcd\xaf", "\xd0\x80"}},
        {"[]", {}, {"", "a"}},
    };
    for (const regex_case& each : cases) {
        CAPTURE(each.regex);
        if (each.allowed.empty()) {
            CHECK(error_of(each.regex) == "the constraint allows no text");
            continue;
        }
        const shared_constraint constraint = constrain_to_regex(each.regex, bytes_trie());
        for (const std::string& text : each.allowed) CHECK_MESSAGE(allows(constraint, text), text);
        for (const std::string& text : each.refused) CHECK_MESSAGE(!allows(constraint, text), text);
    }
}

TEST_CASE("Regular expressions that are refused") {
    const auto refuses = [](const std::string& regex, const std::string& what) {
        CAPTURE(regex);
        const std::string message = error_of(regex);
        CAPTURE(message);
        CHECK(message.find(what) != std::string::npos);
    };
    refuses("(?=a)b", "look-ahead or another special group");
    refuses("(?<!a)b", "look-behind");
    refuses("(a)\\1", "\\1 at position");
    refuses("\\bword", "\\b at position");
    refuses("\\p{L}", "\\p at position");
    refuses("a^b", "an anchor inside");
    refuses("(a|b$)c", "an anchor inside");
    refuses("a**", "a quantifier of a quantifier");
    refuses("a*+", "a possessive quantifier");
    refuses("*a", "a quantifier without a part");
    refuses("(a", "an unfinished group");
    refuses("a)", "an unmatched )");
    refuses("[a", "an unfinished [");
    refuses("[z-a]", "a range that ends before it begins");
    refuses("[\\d-z]", "a range of classes");
    refuses("a{", "a { that is no count");
    refuses("a{5,2}", "the count {5,2}");
    refuses("a{200000}", "a count above 100000");
    refuses("\\ud800", "a surrogate");
    refuses("a\\", "a \\ at the end");
    refuses("\xff", "not valid UTF-8");
    refuses(std::string(300, '('), "a group in more than 100 others");
    // Exponentially many states, and too many.
    refuses("(a|b)*a(a|b){30}", "the constraint is too");
    refuses("((a{0,1000}){0,1000}){0,1000}", "the constraint is too");
    refuses("(((a?){100}){100}){100}", "the constraint is too");
    refuses("(.*x){3000}", "the constraint is too");
}

TEST_CASE("Choices") {
    const shared_constraint constraint = constrain_to_choices({"yes", "no", "yes!", "\xf0\x9f\x98\x80"}, bytes_trie());
    for (const char* const text : {"yes", "no", "yes!", "\xf0\x9f\x98\x80"}) CHECK(allows(constraint, text));
    for (const char* const text : {"", "ye", "yes!!", "noo", "\xf0\x9f"}) CHECK(!allows(constraint, text));
    CHECK_THROWS_WITH(constrain_to_choices({}, bytes_trie()), "choices: there are none; at least one is needed");
}
