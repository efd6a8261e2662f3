// Token placement: every token has one location, rows are in position order, and ranks differ by at most one token.
#include <imbrex/comm/schedule/token_ranges.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

constexpr token_placement placements[] = {token_placement::contiguous, token_placement::zigzag,
                                          token_placement::striped};

// The rank of each token, as drawn in the header.
std::string drawn(token_placement placement, int tokens, int ranks) {
    std::string line;
    for (int i = 0; i < tokens; ++i) line += std::to_string(location_of(placement, tokens, ranks, i).rank);
    return line;
}

}  // namespace

TEST_CASE("tokens are placed as drawn in the header") {
    CHECK(drawn(token_placement::contiguous, 16, 4) == "0000111122223333");
    CHECK(drawn(token_placement::zigzag, 16, 4) == "0011223333221100");
    CHECK(drawn(token_placement::striped, 16, 4) == "0123012301230123");
    // The first ranges are longer.
    CHECK(drawn(token_placement::contiguous, 6, 4) == "001123");
    CHECK(drawn(token_placement::zigzag, 11, 4) == "00112233210");
    CHECK(drawn(token_placement::zigzag, 3, 4) == "012");
    static_assert(tokens_of(token_placement::zigzag, 16, 4, 1).ranges[1].first == 12);
    static_assert(tokens_of(token_placement::striped, 10, 4, 1).position(2) == 9);
}

TEST_CASE("every token has exactly one location") {
    for (const token_placement placement : placements) {
        for (int ranks = 1; ranks <= 64; ++ranks) {
            for (const int tokens : {0, 1, 2, ranks - 1, ranks, ranks + 1, 2 * ranks, 3 * ranks - 1, 5 * ranks + 3}) {
                INFO(name_of(placement), ", ", ranks, " ranks, ", tokens, " tokens");
                std::vector<int> times(tokens, 0);
                int fewest = tokens, most = 0, before = 0;
                bool in_order = true, places_agree = true;
                for (int rank = 0; rank < ranks; ++rank) {
                    const token_ranges ranges = tokens_of(placement, tokens, ranks, rank);
                    fewest = std::min(fewest, ranges.count());
                    most = std::max(most, ranges.count());
                    CHECK(tokens_before(placement, tokens, ranks, rank) == before);
                    before += ranges.count();
                    for (int row = 0, last = -1; row < ranges.count(); ++row) {
                        const int position = ranges.position(row);
                        REQUIRE(position >= 0);
                        REQUIRE(position < tokens);
                        ++times[position];
                        in_order = in_order && position > last;
                        last = position;
                        const token_location place = location_of(placement, tokens, ranks, position);
                        places_agree = places_agree && place.rank == rank && place.row == row;
                    }
                }
                CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
                CHECK(in_order);
                CHECK(places_agree);
                CHECK(most - fewest <= 1);
            }
        }
    }
}

TEST_CASE("the longest sequence does not overflow") {
    for (const token_placement placement : placements) {
        const token_ranges ranges = tokens_of(placement, max_tokens, 7, 6);
        const int last = ranges.position(ranges.count() - 1);
        CHECK(last >= 0);
        CHECK(last < max_tokens);
        CHECK(location_of(placement, max_tokens, 7, last).rank == 6);
        CHECK(location_of(placement, max_tokens, 7, last).row == ranges.count() - 1);
    }
}
