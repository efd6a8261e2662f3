// Pre-tokenizers against the results of the regular expressions.
#include "engine/tokenizer/pre_tokenizer.hpp"

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

// The words, joined by bars.
std::string cut(std::string_view text, split_pattern pattern) {
    std::string result;
    for (const std::string_view word : split_words(text, pattern)) {
        if (!result.empty()) result += '|';
        result += word;
    }
    return result;
}

}  // namespace

TEST_CASE("Splits like GPT-2") {
    const auto gpt2 = [](std::string_view text) { return cut(text, split_pattern::gpt2); };
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
    const auto llama = [](std::string_view text) { return cut(text, split_pattern::llama3); };
    const auto qwen = [](std::string_view text) { return cut(text, split_pattern::qwen2); };
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
    const auto o200k = [](std::string_view text) { return cut(text, split_pattern::o200k); };
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
    CHECK(cut("a12b 3", split_pattern::digits) == "a|1|2|b |3");
}

TEST_CASE("Finds patterns by name and by expression") {
    CHECK(split_pattern_named("llama-bpe") == split_pattern::llama3);
    CHECK(split_pattern_named("qwen2") == split_pattern::qwen2);
    CHECK_FALSE(split_pattern_named("unheard-of"));
    CHECK(split_pattern_of_expression(
              R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") == split_pattern::gpt2);
    CHECK_FALSE(split_pattern_of_expression(".*"));
}

}  // namespace imbrex::engine::test
