#include "engine/tokenizer/tokenizer.hpp"

#include <chrono>
#include <limits>

#include "engine/support.hpp"
#include "engine/tokenizer/utf8.hpp"

namespace imbrex::engine::test {

namespace {

// A token per byte, then those of the test.
vocabulary bytes_vocabulary() {
    vocabulary words;
    words.name = "test";
    for (int byte = 0; byte < 256; ++byte) words.tokens.push_back({std::string(1, static_cast<char>(byte)), {}, 0});
    return words;
}

int add_token(vocabulary& words, const std::string& text, token_kind kind = token_kind::normal, float score = 0) {
    words.tokens.push_back({text, kind, score});
    return static_cast<int>(words.tokens.size()) - 1;
}

int add_merge(vocabulary& words, int left, int right) {
    const auto text = [&](int id) { return words.tokens[static_cast<std::size_t>(id)].bytes; };
    const int id = add_token(words, text(left) + text(right));
    words.merges.push_back({left, right, id});
    return id;
}

// SentencePiece style: code points, scores, byte fallback.
vocabulary scored_vocabulary() {
    vocabulary words;
    words.name = "test";
    words.symbols = symbol_size::code_point;
    words.order = merge_order::scores;
    words.underscore_is_space = true;
    words.prefix_space = prefix_space_mode::always;
    add_token(words, "<unk>", token_kind::special);
    add_token(words, "<s>", token_kind::special);
    words.prefix_ids = {1};
    for (int byte = 0; byte < 256; ++byte) add_token(words, std::string(1, static_cast<char>(byte)), token_kind::byte);
    return words;
}

}  // namespace

TEST_CASE("Merges in the order of the list") {
    vocabulary words = bytes_vocabulary();
    const int bc = add_merge(words, 'b', 'c');
    const int ab = add_merge(words, 'a', 'b');
    const int abab = add_merge(words, ab, ab);
    const int aa = add_merge(words, 'a', 'a');
    const tokenizer tokens(std::move(words));
    CHECK(tokens.encode("abc") == std::vector<int>{'a', bc});
    CHECK(tokens.encode("abab") == std::vector<int>{abab});
    CHECK(tokens.encode("ababab") == std::vector<int>{abab, ab});
    CHECK(tokens.encode("aaa") == std::vector<int>{aa, 'a'});  // leftmost on ties
    CHECK(tokens.encode("").empty());
    CHECK(tokens.decode(tokens.encode("abcab")) == "abcab");
}

TEST_CASE("Merge orders: complete words, lowest id, highest score") {
    vocabulary whole = bytes_vocabulary();
    const int ab = add_merge(whole, 'a', 'b');
    const int abc = add_token(whole, "abc");  // not reachable by merges
    vocabulary merged = whole;
    whole.ignore_merges = true;
    CHECK(tokenizer(std::move(whole)).encode("abc") == std::vector<int>{abc});
    CHECK(tokenizer(std::move(merged)).encode("abc") == std::vector<int>{ab, 'c'});

    vocabulary ranked = bytes_vocabulary();
    ranked.order = merge_order::ids;
    const int yz = add_token(ranked, "yz");
    add_token(ranked, "xy");
    CHECK(tokenizer(std::move(ranked)).encode("xyz!") == std::vector<int>{'x', yz, '!'});

    vocabulary scored = scored_vocabulary();
    const int space = add_token(scored, " ", token_kind::normal, -9);
    const int x = add_token(scored, "x", token_kind::normal, -9);
    const int y = add_token(scored, "y", token_kind::normal, -9);
    add_token(scored, "xy", token_kind::normal, -2);
    const int yx = add_token(scored, "yx", token_kind::normal, -1);
    const tokenizer tokens(std::move(scored));
    CHECK(tokens.encode("xyx") == std::vector<int>{1, space, x, yx});
    CHECK(tokens.encode("x\u2581y", {.add_special_tokens = false}) == std::vector<int>{space, x, space, y});
    const int first_byte = 2;
    CHECK(tokens.encode("\u00e4", {.add_special_tokens = false}) ==
          std::vector<int>{space, first_byte + 0xc3, first_byte + 0xa4});
    CHECK(tokens.decode(tokens.encode("x \u00e4y")) == "x \u00e4y");
    CHECK(tokens.decode(tokens.encode(" x")) == " x");
}

TEST_CASE("Parses special tokens only on request") {
    vocabulary words = bytes_vocabulary();
    words.splits = {regular_expression(split_expressions::gpt2)};
    const int end = add_token(words, "<|end|>", token_kind::special);
    const int longer = add_token(words, "<|end|>!", token_kind::special);
    const int think = add_token(words, "<think>", token_kind::added);
    words.prefix_ids = {end};
    words.suffix_ids = {longer};
    words.ignore_merges = true;
    const tokenizer tokens(std::move(words));
    const auto plain = tokens.encode("<|end|>", {.add_special_tokens = false});
    CHECK(plain.size() == 7);
    CHECK(tokens.decode(plain) == "<|end|>");
    CHECK(tokens.encode("a<|end|>b", {.add_special_tokens = false, .parse_special = true}) ==
          std::vector<int>{'a', end, 'b'});
    CHECK(tokens.encode("<|end|>!", {.add_special_tokens = false, .parse_special = true}) ==
          std::vector<int>{longer});  // the longest
    CHECK(tokens.encode("<think>", {.add_special_tokens = false}) == std::vector<int>{think});
    CHECK(tokens.encode("x") == std::vector<int>{end, 'x', longer});
    CHECK(tokens.decode(std::vector{end, int{'x'}, think}) == "x<think>");
    CHECK(tokens.decode(std::vector{end, int{'x'}}, tokenizer::special_tokens::shown) == "<|end|>x");
    CHECK(tokens.special("<|end|>") == end);
    CHECK_FALSE(tokens.special("x"));
    CHECK_FALSE(tokens.special(""));
}

TEST_CASE("Maps missing symbols to the unknown token or throws") {
    vocabulary words;
    words.name = "test";
    add_token(words, "a");
    vocabulary lenient = words;
    lenient.unknown = add_token(lenient, "<unk>", token_kind::special);
    CHECK(tokenizer(std::move(lenient)).encode("aba") == std::vector<int>{0, 1, 0});
    const tokenizer strict(std::move(words));
    check_error_message("test: has no token for \"b\" (first byte 98)", [&] { strict.encode("aba"); });
    check_error_message("test: token id 1; there are 1 tokens", [&] { strict.decode(std::vector{1}); });
    check_error_message("test: token id -1; there are 1 tokens", [&] { strict.at(-1); });
}

TEST_CASE("Rejects invalid vocabularies") {
    check_error_message("has no tokens", [&] { tokenizer(vocabulary{}); });
    vocabulary words = bytes_vocabulary();
    words.prefix_ids = {256};
    check_error_message("test: token id 256; there are 256 tokens", [&] { tokenizer{words}; });
    words.prefix_ids.clear();
    words.unknown = -1;
    check_error_message("test: token id -1", [&] { tokenizer{words}; });
    words.unknown.reset();
    words.tokens[3].score = std::numeric_limits<float>::quiet_NaN();
    check_error_message("token 3 has the score", [&] { tokenizer{words}; });
}

TEST_CASE("The streaming detokenizer never emits a partial character") {
    vocabulary words = bytes_vocabulary();
    const int end = add_token(words, "<|end|>", token_kind::special);
    const tokenizer tokens(std::move(words));
    incremental_detokenizer decoder(tokens);
    const std::string text = "a\u00e4\u20ac\U0001f999b";
    std::string all;
    for (const char byte : text) {
        const std::string part = decoder.push(static_cast<unsigned char>(byte));
        CHECK((part.empty() || first_code_point(part).length == static_cast<int>(part.size())));
        all += part;
    }
    CHECK(all == text);
    CHECK(decoder.finish().empty());
    CHECK(decoder.push(0xf0).empty());
    CHECK(decoder.push(0x9f).empty());
    CHECK(decoder.push('x') == "\ufffd\ufffdx");  // cannot be completed any more
    CHECK(decoder.push(0x80) == "\ufffd");
    CHECK(decoder.push(0xe2).empty());
    CHECK(decoder.push(end) == "\ufffd");
    CHECK(decoder.push(0xe2).empty());
    CHECK(decoder.finish() == "\ufffd");
    CHECK(decoder.finish().empty());
}

TEST_CASE("Prints the leading space of a continuation, not of a new text") {
    vocabulary words = scored_vocabulary();
    const int hello = add_token(words, " Hello");
    const tokenizer tokens(std::move(words));
    incremental_detokenizer beginning(tokens), continuing(tokens, incremental_detokenizer::text_position::continuation);
    CHECK(beginning.push(1).empty());
    CHECK(beginning.push(hello) == "Hello");
    CHECK(beginning.push(hello) == " Hello");
    CHECK(continuing.push(hello) == " Hello");
}

TEST_CASE("Encoding time is not quadratic") {
    vocabulary words = bytes_vocabulary();
    int longest = add_merge(words, 'a', 'a');
    for (int i = 0; i < 4; ++i) longest = add_merge(words, longest, longest);
    const tokenizer tokens(std::move(words));
    const auto start = std::chrono::steady_clock::now();
    CHECK(tokens.encode(std::string(1 << 18, 'a')) == std::vector<int>(1 << 13, longest));
    // A quadratic algorithm takes minutes for this.
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("Special tokens may take the white space beside them") {
    vocabulary words;
    words.name = "test";
    for (int byte = 0; byte < 256; ++byte) words.tokens.push_back({std::string(1, static_cast<char>(byte))});
    words.tokens.push_back({"<l>", token_kind::special, 0, true, false});
    words.tokens.push_back({"<r>", token_kind::special, 0, false, true});
    const tokenizer tokens(std::move(words));
    const auto encode = [&](std::string_view text) {
        return tokens.encode(text, {.add_special_tokens = false, .parse_special = true});
    };
    CHECK(encode("a \t<l> b") == std::vector<int>{'a', 256, ' ', 'b'});
    CHECK(encode("a <r>\n\n b") == std::vector<int>{'a', ' ', 257, 'b'});
    CHECK(encode("<r>  <l>") == std::vector<int>{257, 256});
    CHECK(tokens.encode("a <l>") == std::vector<int>{'a', ' ', '<', 'l', '>'});
}

TEST_CASE("Guarded text has no special tokens, and the guard is no text") {
    vocabulary words;
    words.name = "test";
    for (int byte = 0; byte < 256; ++byte) words.tokens.push_back({std::string(1, static_cast<char>(byte))});
    words.tokens.push_back({"<|end|>", token_kind::special});
    words.tokens.push_back({"<tool>", token_kind::added});
    words.tokens.push_back({"\uff5cstop\uff5c", token_kind::special});
    const tokenizer tokens(std::move(words));
    const auto encode = [&](std::string_view text) {
        return tokens.encode(text, {.add_special_tokens = false, .parse_special = true});
    };
    CHECK(guarded("plain \u00e4 <|en", tokens) == "plain \u00e4 <|en");
    for (const std::string text : {"a<|end|>b<|end|>", "\uff5cstop\uff5c", "<|end<|end|>|>"}) {
        CHECK(encode(guarded(text, tokens)) == tokens.encode(text));
        CHECK(encode(text) != tokens.encode(text));
    }
    CHECK(encode(guarded("<tool>", tokens)) == std::vector<int>{257});
}

}  // namespace imbrex::engine::test
