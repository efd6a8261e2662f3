// What queries see of keys, counted and in parts, against the positions themselves.
#include <imbrex/comm/schedule/block.hpp>

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

// Every pair is in as many parts as it is seen: one or none. Each part is asked as a kernel asks it, through its mask.
void test_block(const token_runs& queries, const token_runs& keys, const window_mask& mask) {
    const int rows = queries.count(), columns = keys.count();
    const block_parts parts = parts_between(queries, keys, mask);
    std::vector<int> times(rows * columns, 0);
    bool right_counts = true;
    for (const block_part& part : parts) {
        REQUIRE(part.first_query >= 0);
        REQUIRE(part.first_query + part.queries <= rows);
        REQUIRE(part.first_key >= 0);
        REQUIRE(part.first_key + part.keys <= columns);
        std::int64_t entries = 0;
        const attention_sequence sequence{0, 0, part.queries, part.keys};
        for (int i = 0; i < part.queries; ++i) {
            for (int j = 0; j < part.keys; ++j) {
                const bool kept = j - i >= part.lower && j - i <= part.upper;
                right_counts = right_counts && kept == part.mask().keep(sequence, i, j);
                entries += kept;
                times[(part.first_query + i) * columns + part.first_key + j] += kept;
            }
        }
        right_counts = right_counts && entries == part.entries && entries > 0 &&
                       part.full() == (entries == std::int64_t{part.queries} * part.keys);
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
    CHECK(entries_between(queries, keys, mask) == all);
    CHECK(parts.entries() == all);
}

}  // namespace

TEST_CASE("blocks of scores are what positions say") {
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

TEST_CASE("causal blocks are one part") {
    const auto part = [](token_placement placement, int query, int key) {
        const block_parts parts = parts_between(tokens_of(placement, 64, 4, query), tokens_of(placement, 64, 4, key),
                                                as_window(causal_mask{}));
        CHECK(parts.count == 1);
        return parts.parts[0];
    };
    for (int rank = 0; rank < 4; ++rank) {
        for (const token_placement placement : placements) {
            const block_part own = part(placement, rank, rank);
            CHECK(own.entries == 16 * 17 / 2);
            CHECK(own.mask().left == unbounded);
            CHECK(own.mask().right == 0);
        }
    }
    // Zigzag: all queries with the first half of the keys of a rank before, the second half of the queries with all keys
    // of a rank behind. Neither needs a mask.
    const block_part before = part(token_placement::zigzag, 2, 1), behind = part(token_placement::zigzag, 1, 2);
    CHECK(before.full());
    CHECK(before.queries == 16);
    CHECK(before.first_key == 0);
    CHECK(before.keys == 8);
    CHECK(behind.full());
    CHECK(behind.first_query == 8);
    CHECK(behind.queries == 8);
    CHECK(behind.keys == 16);
    // Striped: a diagonal more or less.
    CHECK(part(token_placement::striped, 2, 1).upper == 0);
    CHECK(part(token_placement::striped, 1, 2).upper == -1);
    // Contiguous: all, or nothing.
    CHECK(part(token_placement::contiguous, 2, 1).full());
    CHECK(parts_between(tokens_of(token_placement::contiguous, 64, 4, 1),
                        tokens_of(token_placement::contiguous, 64, 4, 2), as_window(causal_mask{}))
              .count == 0);
}

TEST_CASE("bands are the same where they leave the same scores, not as many") {
    constexpr detail::block_piece piece{0, 4, 0, 4, {-1, -1}};
    static_assert(piece.entries() == piece.entries_in({1, 1}));
    static_assert(!piece.same_in({1, 1}));
    static_assert(piece.same_in({-1, -1}));
    // Ends outside of the rectangle mean nothing.
    static_assert(detail::block_piece{0, 4, 8, 4, {}}.same_in({0, 11}));
    static_assert(!detail::block_piece{0, 4, 8, 4, {}}.same_in({0, 10}));
    static_assert(detail::block_piece{0, 4, 8, 4, {9, 4}}.same_in({0, 4}));
}

TEST_CASE("scores of the longest sequence are counted") {
    constexpr std::int64_t tokens = most_tokens;
    constexpr token_runs all{{{0, most_tokens}, {}}, 1};
    static_assert(entries_between(all, all, as_window(causal_mask{})) == tokens * (tokens + 1) / 2);
    static_assert(entries_between(all, all, as_window(full_mask{})) == tokens * tokens);
    static_assert(parts_between(all, all, {1000, 0}).entries() == 1001 * tokens - 1000 * 1001 / 2);
    for (const token_placement placement : placements) {
        std::int64_t sum = 0;
        for (int i = 0; i < 9; ++i) {
            for (int j = 0; j < 9; ++j) {
                sum += entries_between(tokens_of(placement, most_tokens, 9, i), tokens_of(placement, most_tokens, 9, j),
                                       as_window(causal_mask{}));
            }
        }
        CHECK(sum == tokens * (tokens + 1) / 2);
    }
}
