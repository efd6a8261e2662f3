// Drafts by prompt lookup, against a plain search.
#include "engine/serving/ngram_proposer.hpp"

#include <doctest/doctest.h>
#include <imbrex/core/error.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

using namespace imbrex::engine;

namespace {

// All end positions, the most recent first; of the longest match the first one found.
std::vector<int> searched(const std::vector<int>& tokens, int count, int least, int most) {
    const auto length = static_cast<int>(tokens.size());
    for (int size = std::min(most, length - 1); size >= std::max(least, 1); --size) {
        for (int end = length - 1; end >= size; --end) {
            if (!std::equal(tokens.end() - size, tokens.end(), tokens.begin() + (end - size))) continue;
            std::vector<int> all = tokens;
            for (int i = 0; i < count; ++i) all.push_back(all[static_cast<std::size_t>(end + i)]);
            return {all.begin() + length, all.end()};
        }
    }
    return {};
}

}  // namespace

TEST_CASE("A draft continues the most recent of the longest matches") {
    CHECK(ngram_draft(std::vector{1, 2, 3, 4, 9, 1, 2, 3}, 3) == std::vector{4, 9, 1});
    CHECK(ngram_draft(std::vector{1, 2, 3, 7, 2, 3, 8, 2, 3}, 1) == std::vector{8});
    CHECK(ngram_draft(std::vector{1, 2, 3, 7, 2, 3, 8, 1, 2, 3}, 1) == std::vector{7});
    CHECK(ngram_draft(std::vector{5, 6, 5, 6}, 5) == std::vector{5, 6, 5, 6, 5});  // into itself
    CHECK(ngram_draft(std::vector{4, 4, 4}, 4) == std::vector{4, 4, 4, 4});
    CHECK(ngram_draft(std::vector{1, 2, 3, 4, 2}, 4).empty());  // a match of one token is too short
    CHECK(ngram_draft(std::vector{1, 2, 3, 4, 2}, 2, {.min_ngram = 1}) == std::vector{3, 4});
    CHECK(ngram_draft(std::vector{1}, 4, {.min_ngram = 1}).empty());
    CHECK(ngram_draft(std::vector{1, 2}, 3, {.min_ngram = 0}) == std::vector{1, 2, 1});  // without any match
    CHECK(ngram_draft(std::vector{1, 2, 1, 2}, 0).empty());
}

TEST_CASE("Drafts of random texts are those of a plain search") {
    std::mt19937 random(1);
    int found = 0;
    for (int i = 0; i < 3000; ++i) {
        std::vector<int> tokens(1 + random() % 40);
        const unsigned vocabulary = 2 + static_cast<unsigned>(random() % 6);
        for (int& token : tokens) token = static_cast<int>(random() % vocabulary);
        const int most = 1 + static_cast<int>(random() % 5), least = 1 + static_cast<int>(random()) % most;
        const int count = static_cast<int>(random() % 9);
        const ngram_options options{.min_ngram = std::max(least, 1), .max_ngram = most};
        const std::vector<int> expected = searched(tokens, count, options.min_ngram, most);
        found += !expected.empty();
        if (ngram_draft(tokens, count, options) != expected) FAIL("text " << i);
    }
    CHECK(found > 1000);
}

TEST_CASE("Entries get drafts up to their limits") {
    sequence one;
    one.tokens = {1, 2, 3, 1, 2};
    const auto repeats = std::make_shared<const sequence>(one);
    one.tokens = {1, 2, 3, 4, 5};
    const auto does_not = std::make_shared<const sequence>(one);
    batch work;
    work.entries = {{.sequence = repeats, .first = 4, .count = 1, .samples = true, .max_draft = 2},
                    {.sequence = repeats, .first = 4, .count = 1, .samples = true},
                    {.sequence = does_not, .first = 4, .count = 1, .samples = true, .max_draft = 2}};
    ngram_proposer().propose(work);
    CHECK(work.entries[0].draft == std::vector{3, 1});
    CHECK(work.entries[0].count == 3);
    CHECK(work.entries[1].draft.empty());
    CHECK(work.entries[2].draft.empty());
    CHECK(work.samples() == 5);
    CHECK(work.drafted() == 2);
    CHECK_THROWS_WITH_AS(ngram_proposer({.min_ngram = 5}), "min_ngram: 5; it must be from 0 to max_ngram, 4",
                         imbrex::invalid_argument);
}
