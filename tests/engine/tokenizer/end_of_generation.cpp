#include "engine/tokenizer/end_of_generation.hpp"

#include <algorithm>

#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

std::vector<int> ends_of(const std::vector<token>& tokens, const std::vector<int>& in_file = {}) {
    vocabulary words;
    words.name = "test";
    words.tokens = tokens;
    std::vector<int> ids = end_of_generation_tokens(tokenizer(std::move(words)), in_file);
    std::ranges::sort(ids);
    return ids;
}

}  // namespace

TEST_CASE("Finds the tokens that end a generation by name") {
    CHECK(ends_of({{"<|endoftext|>", token_kind::special},
                   {"<|im_start|>", token_kind::special},
                   {"<|im_end|>", token_kind::special},
                   {"</s>", token_kind::normal}}) == std::vector<int>{0, 2});
    CHECK(ends_of({{"<eos>", token_kind::special}, {"<end_of_turn>", token_kind::added}}) == std::vector<int>{0, 1});
    CHECK(ends_of({{"a", token_kind::normal}}).empty());
}

TEST_CASE("In harmony, <|end|> ends a message only") {
    const token end{"<|end|>", token_kind::special}, back{"<|return|>", token_kind::special},
        call{"<|call|>", token_kind::special};
    CHECK(ends_of({end}) == std::vector<int>{0});
    CHECK(ends_of({end, back, call}) == std::vector<int>{1, 2});
    CHECK(ends_of({end, back, call}, {0, 2}) == std::vector<int>{1, 2});  // files may call it the end of a turn
    CHECK(ends_of({end}, {0, 5}) == std::vector<int>{0, 5});
}

}  // namespace imbrex::engine::test
