// Pre-tokenizers against the results of the regular expressions.
#include "engine/tokenizer/pre_tokenizer.hpp"

#include <nlohmann/json.hpp>

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// The words, joined by bars.
std::string cut(std::string_view text, std::string_view expression) {
    std::string result;
    for (const std::string_view word : split_words(text, compiled({{expression}}))) {
        if (!result.empty()) result += '|';
        result += word;
    }
    return result;
}

}  // namespace

TEST_CASE("Splits like GPT-2") {
    const auto gpt2 = [](std::string_view text) { return cut(text, split_expressions::gpt2); };
    CHECK(gpt2("Hello, world! It's 1234") == "Hello|,| world|!| It|'s| 1234");
    CHECK(gpt2("we'll they've I'd I'M") == "we|'ll| they|'ve| I|'d| I|'|M");
    CHECK(gpt2("a   b  \n\n c ") == "a|  | b|  \n\n| c| ");
    CHECK(gpt2("x\ty") == "x|\t|y");
    CHECK(gpt2("   ") == "   ");
    CHECK(gpt2("a1b2") == "a|1|b|2");
    CHECK(gpt2(" !?\u2026\u4e2d\u6587") == " !?\u2026|\u4e2d\u6587");
    CHECK(gpt2("e\u0301") == "e|\u0301");  // a mark is not a letter
    CHECK(gpt2("").empty());
    CHECK(gpt2("a\xff\xfe b") == "a|\xff\xfe| b");
}

TEST_CASE("Splits like Llama 3 and Qwen 2") {
    const auto llama = [](std::string_view text) { return cut(text, split_expressions::llama3); };
    const auto qwen = [](std::string_view text) { return cut(text, split_expressions::qwen2); };
    CHECK(llama("I'M don'T y'\u017f") == "I|'M| don|'T| y|'\u017f");
    CHECK(llama("1234567 12") == "123|456|7| |12");
    CHECK(qwen("1234 5") == "1|2|3|4| |5");
    CHECK(llama("(word) _x\tname") == "(word|)| _|x|\tname");
    CHECK(llama("end.\n\n  next") == "end|.\n\n| | next");
    CHECK(llama("a \n \n b") == "a| \n \n| b");
    CHECK(llama("\r\n\r\nx") == "\r\n\r\n|x");
    CHECK(llama("a  ") == "a|  ");
    CHECK(llama("a   b") == "a|  | b");
    CHECK(qwen(" \u00bd \u4e2d") == " |\u00bd| \u4e2d");
}

TEST_CASE("Splits like o200k") {
    const auto o200k = [](std::string_view text) { return cut(text, split_expressions::o200k); };
    CHECK(o200k("camelCase XMLParser HTTP") == "camel|Case| XMLParser| HTTP");
    CHECK(o200k("don't WON'T it's") == "don't| WON'T| it's");
    CHECK(o200k("path/to//file") == "path|/to|//|file");
    CHECK(o200k("a!/\n/b") == "a|!/\n/|b");
    CHECK(o200k("12345") == "123|45");
    CHECK(o200k("\u4e2d\u6587ABC") == "\u4e2d\u6587|ABC");
    CHECK(o200k("ABC\u4e2dDE") == "ABC\u4e2d|DE");
    CHECK(o200k("\u0301\u0301") == "\u0301\u0301");
    CHECK(o200k("  x\n y") == " | x|\n| y");
}

TEST_CASE("Splits single digits") {
    CHECK(cut("a12b 3", split_expressions::single_digits) == "a|1|2|b |3");
}

TEST_CASE("Splits by the rule of each name as Hugging Face's tokenizers do") {
    const auto data = nlohmann::json::parse(content("tests/engine/data/split_words.json"));
    const std::vector<std::string> texts = data["texts"];
    for (const auto& pattern : data["patterns"]) {
        for (const std::string name : pattern["names"]) {
            CAPTURE(name);
            const auto rule = split_rule_named(name);
            REQUIRE(rule.has_value());
            const auto expressions = compiled(rule->expressions);
            for (std::size_t i = 0; i < texts.size(); ++i) {
                CAPTURE(texts[i]);
                std::vector<std::size_t> lengths;
                for (const std::string_view word : split_words(texts[i], expressions)) lengths.push_back(word.size());
                CHECK(lengths == pattern["words"][i].get<std::vector<std::size_t>>());
            }
        }
    }
}

TEST_CASE("The expressions of all names compile") {
    CHECK(split_rule_names().size() > 60);
    for (const std::string_view name : split_rule_names()) {
        CAPTURE(std::string(name));
        const auto rule = split_rule_named(name);
        REQUIRE(rule.has_value());
        std::string joined;
        for (const std::string_view word : split_words("It's 12345 \xff\n\n x", compiled(rule->expressions)))
            joined += word;
        CHECK(joined == "It's 12345 \xff\n\n x");
    }
    CHECK_FALSE(split_rule_named("unheard-of"));
    CHECK_FALSE(split_rule_named(""));
    CHECK_FALSE(split_rule_named("gpt"));
}

TEST_CASE("Regular expressions: repetition, sets and look-ahead") {
    CHECK(cut("aaab", "a{2}") == "aa|ab");
    CHECK(cut("aaaab", "a{1,3}") == "aaa|a|b");
    CHECK(cut("aaab", "a{2,}") == "aaa|b");
    CHECK(cut("ababa", "(?:ab)+") == "abab|a");
    CHECK(cut("aab", "a*+b") == "aab");
    CHECK(cut("aaa", "a++a") == "aaa");  // possessive: nothing is given back, so nothing matches
    CHECK(cut("aab", "a(?=b)|b") == "a|a|b");
    CHECK(cut("a-]z", R"([\]\-])") == "a|-|]|z");
    CHECK(cut("a b", R"(\S)") == "a| |b");
    CHECK(cut("aB1_", R"([^\W\d_]+)") == "aB|1_");
    CHECK(cut("a\nb", ".") == "a|\n|b");
    CHECK(cut("xyz", "x(y|)z") == "xyz");
    CHECK(cut("ab cd", R"(\b\w)") == "a|b |c|d");
    CHECK(cut("KkSs", "(?i:k)") == "K|k|Ss");
}

TEST_CASE("Regular expressions that are not supported are refused with their place") {
    const auto refused = [](std::string_view expression, const std::string& part) {
        check_error_message(part, [&] { regular_expression{expression}; });
    };
    refused("a(b", "at byte 3: a parenthesis is not closed");
    refused("a)", "a parenthesis is closed");
    refused("a+?", "lazy");
    refused("(?<=a)b", "only (?:, (?i:, (?= and (?! are supported");
    refused("[a", "ends too early");
    refused("[a[b]]", "sets in sets");
    refused(R"(\p{Han})", "\\p{Han} is not known");
    refused(R"(\q)", "\\q is not supported");
    refused("[z-a]", "ends before it begins");
    refused("(?:a|b)+", "must have a fixed length");
    refused("a{9999}", "a number up to 1024");
    refused("^a", "\"^\" is not supported here");
    refused(std::string(40, '(') + std::string(40, ')'), "nested more than");
    refused("\xff", "not UTF-8");
}

}  // namespace imbrex::engine::test
