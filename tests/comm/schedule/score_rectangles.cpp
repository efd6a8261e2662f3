// Score rectangles and their counts against a mask evaluated on token positions.
#include <imbrex/comm/schedule/score_rectangles.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace imbrex;

namespace {

constexpr token_placement placements[] = {token_placement::contiguous, token_placement::zigzag,
                                          token_placement::striped};

bool seen(int query, int key, const window_mask& mask) {
    return (mask.left == unbounded || key >= query - mask.left) &&
           (mask.right == unbounded || key <= query + mask.right);
}

// Every visible pair is in exactly one rectangle, every masked pair in none. Rectangles are evaluated through their
// masks, as a kernel does.
void test_block(const token_ranges& queries, const token_ranges& keys, const window_mask& mask) {
    const int rows = queries.count(), columns = keys.count();
    const score_rectangles rectangles = score_rectangles_between(queries, keys, mask);
    std::vector<int> times(rows * columns, 0);
    bool right_counts = true;
    for (const score_rectangle& rectangle : rectangles) {
        REQUIRE(rectangle.q_start >= 0);
        REQUIRE(rectangle.q_start + rectangle.seqlen_q <= rows);
        REQUIRE(rectangle.k_start >= 0);
        REQUIRE(rectangle.k_start + rectangle.seqlen_k <= columns);
        std::int64_t unmasked_scores = 0;
        const attention_extents sequence{0, 0, rectangle.seqlen_q, rectangle.seqlen_k};
        for (int i = 0; i < rectangle.seqlen_q; ++i) {
            for (int j = 0; j < rectangle.seqlen_k; ++j) {
                const bool kept = j - i >= rectangle.lower && j - i <= rectangle.upper;
                right_counts = right_counts && kept == rectangle.mask().keep(sequence, i, j);
                unmasked_scores += kept;
                times[(rectangle.q_start + i) * columns + rectangle.k_start + j] += kept;
            }
        }
        right_counts = right_counts && unmasked_scores == rectangle.unmasked_scores && unmasked_scores > 0 &&
                       rectangle.full() == (unmasked_scores == std::int64_t{rectangle.seqlen_q} * rectangle.seqlen_k);
    }
    CHECK(right_counts);
    std::int64_t all = 0;
    bool right = true;
    for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
            const bool wanted = seen(queries.position(i), keys.position(j), mask);
            all += wanted;
            right = right && times[i * columns + j] == wanted;
        }
    }
    CHECK(right);
    CHECK(unmasked_scores_between(queries, keys, mask) == all);
    CHECK(rectangles.unmasked_scores() == all);
}

}  // namespace

TEST_CASE("score rectangles match token positions") {
    const window_mask masks[] = {as_window(full_mask{}), as_window(causal_mask{}), {5, 0},    {0, 0}, {3, 4},
                                 {0, unbounded},         {17, unbounded},          {200, 200}};
    for (const token_placement placement : placements) {
        for (const int ranks : {1, 2, 3, 4, 7}) {
            for (const int tokens : {0, 1, ranks, 2 * ranks + 1, 6 * ranks, 7 * ranks + 5}) {
                for (const window_mask& mask : masks) {
                    for (int i = 0; i < ranks; ++i) {
                        for (int j = 0; j < ranks; ++j) {
                            INFO(name_of(placement), ", ", tokens, " tokens, ranks ", i, " and ", j, " of ", ranks,
                                 ", window ", mask.left, " ", mask.right);
                            test_block(tokens_of(placement, tokens, ranks, i), tokens_of(placement, tokens, ranks, j),
                                       mask);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("causal blocks are one rectangle") {
    const auto rectangle_of = [](token_placement placement, int query, int key) {
        const score_rectangles rectangles = score_rectangles_between(
            tokens_of(placement, 64, 4, query), tokens_of(placement, 64, 4, key), as_window(causal_mask{}));
        CHECK(rectangles.count == 1);
        return rectangles.all[0];
    };
    for (int rank = 0; rank < 4; ++rank) {
        for (const token_placement placement : placements) {
            const score_rectangle own = rectangle_of(placement, rank, rank);
            CHECK(own.unmasked_scores == 16 * 17 / 2);
            CHECK(own.mask().left == unbounded);
            CHECK(own.mask().right == 0);
        }
    }
    // Zigzag: all queries with the first half of an earlier rank's keys; the second half of the queries with all keys
    // of a later rank. Neither needs a mask.
    const score_rectangle before = rectangle_of(token_placement::zigzag, 2, 1),
                          behind = rectangle_of(token_placement::zigzag, 1, 2);
    CHECK(before.full());
    CHECK(before.seqlen_q == 16);
    CHECK(before.k_start == 0);
    CHECK(before.seqlen_k == 8);
    CHECK(behind.full());
    CHECK(behind.q_start == 8);
    CHECK(behind.seqlen_q == 8);
    CHECK(behind.seqlen_k == 16);
    // Striped: with or without the diagonal.
    CHECK(rectangle_of(token_placement::striped, 2, 1).upper == 0);
    CHECK(rectangle_of(token_placement::striped, 1, 2).upper == -1);
    // Contiguous: fully visible or fully masked.
    CHECK(rectangle_of(token_placement::contiguous, 2, 1).full());
    CHECK(score_rectangles_between(tokens_of(token_placement::contiguous, 64, 4, 1),
                                   tokens_of(token_placement::contiguous, 64, 4, 2), as_window(causal_mask{}))
              .count == 0);
}

TEST_CASE("bands are equal if they select the same scores, not the same number") {
    constexpr detail::banded_rectangle banded{0, 4, 0, 4, {-1, -1}};
    static_assert(banded.unmasked_scores() == banded.unmasked_scores_in({1, 1}));
    static_assert(!banded.same_in({1, 1}));
    static_assert(banded.same_in({-1, -1}));
    // Bounds outside the rectangle are ignored.
    static_assert(detail::banded_rectangle{0, 4, 8, 4, {}}.same_in({0, 11}));
    static_assert(!detail::banded_rectangle{0, 4, 8, 4, {}}.same_in({0, 10}));
    static_assert(detail::banded_rectangle{0, 4, 8, 4, {9, 4}}.same_in({0, 4}));
}

TEST_CASE("counts the scores of the longest sequence without overflow") {
    constexpr std::int64_t tokens = max_tokens;
    constexpr token_ranges all{{{0, max_tokens}, {}}, 1};
    static_assert(unmasked_scores_between(all, all, as_window(causal_mask{})) == tokens * (tokens + 1) / 2);
    static_assert(unmasked_scores_between(all, all, as_window(full_mask{})) == tokens * tokens);
    static_assert(score_rectangles_between(all, all, {1000, 0}).unmasked_scores() == 1001 * tokens - 1000 * 1001 / 2);
    for (const token_placement placement : placements) {
        std::int64_t sum = 0;
        for (int i = 0; i < 9; ++i) {
            for (int j = 0; j < 9; ++j) {
                sum += unmasked_scores_between(tokens_of(placement, max_tokens, 9, i),
                                               tokens_of(placement, max_tokens, 9, j), as_window(causal_mask{}));
            }
        }
        CHECK(sum == tokens * (tokens + 1) / 2);
    }
}
