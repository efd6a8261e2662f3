// Heads exchanged for tokens: every head has one rank, everyone gets what it attends to and its own tokens back.
#include "transfers.hpp"
#include "worlds.hpp"

#include <imbrex/comm/schedule/head_schedule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace imbrex;
using imbrex_test::refusal_of;
using imbrex_test::transfers_of_all;

namespace {

void test_exchange(const head_schedule& schedule) {
    require_schedule(schedule);
    const int ranks = schedule.ranks, heads = schedule.sizes.heads, key_heads = schedule.sizes.key_heads;
    std::vector<int> times(heads, 0);
    bool right = true;
    const auto expect = [&](bool holds) { right = right && holds; };
    for (int step = 0; step < schedule.steps(); ++step) {
        expect(transfers_of_all(ranks, [&](int rank) { return schedule.sends(rank, step); }) ==
               transfers_of_all(ranks, [&](int rank) { return schedule.receives(rank, step); }));
    }
    for (int rank = 0; rank < ranks; ++rank) {
        const attended_block block = schedule.block(rank, 1);
        for (int head = block.first_head; head < block.first_head + block.heads; ++head) ++times[head];
        const head_range keys = schedule.key_heads_of(rank);
        expect(block.first_head == keys.first * (heads / key_heads) && block.heads == keys.count * (heads / key_heads));
        expect(block.queries.count() == schedule.tokens && block.keys.count() == schedule.tokens);
        // Tokens of each head that a rank has: of its own, and what comes.
        std::vector<int> queries(heads, schedule.tokens_of(rank).count()), outputs(heads, 0);
        std::vector<int> key_rows(key_heads, schedule.tokens_of(rank).count());
        for (int step = 0; step < schedule.steps(); ++step) {
            expect(step == 1 || schedule.block(rank, step).work() == 0);
            for (const transfer& one : schedule.receives(rank, step)) {
                expect(one.to == rank && one.post == step && one.need == step + 1);
                expect((one.what == payload::outputs) == (step == 2));
                std::vector<int>& rows = one.what == payload::queries       ? queries
                                         : one.what == payload::keys_values ? key_rows
                                                                            : outputs;
                for (int head = one.first_head; head < one.first_head + one.heads; ++head) rows[head] += one.rows;
            }
        }
        for (int head = 0; head < heads; ++head) {
            const bool own = head >= block.first_head && head < block.first_head + block.heads;
            expect(!own || queries[head] == schedule.tokens);
            expect(outputs[head] == (own ? 0 : schedule.tokens_of(rank).count()));
        }
        for (int head = keys.first; head < keys.first + keys.count; ++head) expect(key_rows[head] == schedule.tokens);
    }
    CHECK(right);
    CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
}

}  // namespace

TEST_CASE("every head has one rank, which gets all of it") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        for (const int key_heads : {ranks, ranks + ranks / 3, 2 * ranks}) {
            for (const int tokens : {3 * ranks, 2 * ranks + 1, ranks / 2, 0}) {
                INFO(ranks, " ranks, ", key_heads, " heads of keys, ", tokens, " tokens");
                test_exchange(
                    {.tokens = tokens, .ranks = ranks, .sizes = {.heads = 2 * key_heads, .key_heads = key_heads}});
            }
        }
    }
}

TEST_CASE("more ranks than heads of keys are refused") {
    CHECK(refusal_of([] {
              require_schedule(head_schedule{.tokens = 64, .ranks = 16, .sizes = {.heads = 32, .key_heads = 8}});
          }) ==
          "ranks: 16; heads are exchanged for tokens, and there are 8 heads of keys: a ring or a mesh takes more "
          "ranks than that");
    CHECK(refusal_of([] { require_schedule(head_schedule{.tokens = -3}); }) ==
          "tokens: -3; 0 to 1073741823 are allowed");
}
