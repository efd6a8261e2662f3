// Ulysses: every head has exactly one rank, which receives all its tokens, and every rank gets its own tokens of O
// back.
#include "comm/schedule/transfers.hpp"
#include "worlds.hpp"

#include <imbrex/comm/schedule/ulysses_schedule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace imbrex;
using imbrex_test::error_message_of;
using imbrex_test::transfers_of_all;

namespace {

void test_all_to_all(const ulysses_schedule& schedule) {
    require_schedule(schedule);
    const int ranks = schedule.ranks, heads = schedule.sizes.heads, kv_heads = schedule.sizes.kv_heads;
    std::vector<int> times(heads, 0);
    bool right = true;
    const auto expect = [&](bool holds) { right = right && holds; };
    for (int step = 0; step < schedule.steps(); ++step) {
        expect(transfers_of_all(ranks, [&](int rank) { return schedule.sends(rank, step); }) ==
               transfers_of_all(ranks, [&](int rank) { return schedule.receives(rank, step); }));
    }
    for (int rank = 0; rank < ranks; ++rank) {
        const attention_block block = schedule.block(rank, 1);
        for (int head = block.first_head; head < block.first_head + block.heads; ++head) ++times[head];
        const head_range keys = schedule.kv_heads_of(rank);
        expect(block.first_head == keys.first * (heads / kv_heads) && block.heads == keys.count * (heads / kv_heads));
        expect(block.q_tokens.count() == schedule.tokens && block.k_tokens.count() == schedule.tokens);
        // Tokens that a rank holds of each head: its own, and arrivals.
        std::vector<int> queries(heads, schedule.tokens_of(rank).count()), outputs(heads, 0);
        std::vector<int> key_rows(kv_heads, schedule.tokens_of(rank).count());
        for (int step = 0; step < schedule.steps(); ++step) {
            expect(step == 1 || schedule.block(rank, step).work() == 0);
            for (const transfer& one : schedule.receives(rank, step)) {
                expect(one.to == rank && one.post_step == step && one.needed_step == step + 1);
                expect((one.what == payload::o) == (step == 2));
                std::vector<int>& rows = one.what == payload::q    ? queries
                                         : one.what == payload::kv ? key_rows
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

TEST_CASE("every head has exactly one rank, which receives all its tokens") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        for (const int kv_heads : {ranks, ranks + ranks / 3, 2 * ranks}) {
            for (const int tokens : {3 * ranks, 2 * ranks + 1, ranks / 2, 0}) {
                INFO(ranks, " ranks, ", kv_heads, " kv_heads, ", tokens, " tokens");
                test_all_to_all(
                    {.tokens = tokens, .ranks = ranks, .sizes = {.heads = 2 * kv_heads, .kv_heads = kv_heads}});
            }
        }
    }
}

TEST_CASE("rejects more ranks than KV heads") {
    CHECK(error_message_of([] {
              require_schedule(ulysses_schedule{.tokens = 64, .ranks = 16, .sizes = {.heads = 32, .kv_heads = 8}});
          }) ==
          "ranks: 16; Ulysses allows at most one rank per KV head, and there are 8 KV heads; use a ring or a mesh for "
          "more ranks");
    CHECK(error_message_of([] { require_schedule(ulysses_schedule{.tokens = -3}); }) ==
          "tokens: -3; 0 to 1073741823 are allowed");
}
