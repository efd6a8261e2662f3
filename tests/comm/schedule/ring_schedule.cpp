// Rings and meshes of up to 64 ranks: each block of scores is computed by exactly one rank, data arrives before its
// use, sends match receives, two K/V buffers suffice, and invalid schedules are rejected.
#include "comm/schedule/transfers.hpp"
#include "worlds.hpp"

#include <imbrex/comm/schedule/ring_schedule.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

using namespace imbrex;
using imbrex_test::error_message_of;
using imbrex_test::transfers_of_all;

namespace {

constexpr token_placement placements[] = {token_placement::contiguous, token_placement::zigzag,
                                          token_placement::striped};

// State of a rank during the replay: the queries and keys that it holds, and how many ranks' keys each query chunk has
// attended.
struct rank_state {
    std::vector<int> queries;
    int keys;  // last arrival: the next one may overwrite it
    std::vector<std::int64_t> unmasked_scores;
    std::vector<int> visits;
    std::int64_t merged = 0;
};

bool has(const std::vector<int>& all, int one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

void test_steps(const ring_schedule& schedule) {
    const int ranks = schedule.ranks, a = schedule.q_chunks, b = schedule.kv_chunks();
    require_schedule(schedule);
    std::vector<rank_state> states(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        states[rank] = {{rank}, rank, std::vector<std::int64_t>(ranks, 0), std::vector<int>(ranks, 0), 0};
    }
    std::vector<int> times(ranks * ranks, 0);
    std::vector<transfer> under_way;
    bool right = true;
    const auto expect = [&](bool holds) { right = right && holds; };
    for (int step = 0; step <= schedule.steps(); ++step) {
        for (const transfer& one : under_way) {
            if (one.needed_step != step) continue;
            rank_state& to = states[one.to];
            if (one.what == payload::q) to.queries.push_back(one.chunk);
            if (one.what == payload::partial_o) to.merged += states[one.from].unmasked_scores[one.chunk];
            if (one.what == payload::kv) to.keys = one.chunk;
        }
        std::erase_if(under_way, [&](const transfer& one) { return one.needed_step == step; });
        if (step == schedule.steps()) break;
        const auto sent = transfers_of_all(ranks, [&](int rank) { return schedule.sends(rank, step); });
        expect(sent == transfers_of_all(ranks, [&](int rank) { return schedule.receives(rank, step); }));
        for (const transfer& one : sent) {
            expect(one.from != one.to && one.post_step == step && one.needed_step > step);
            expect(one.rows == schedule.tokens_of(one.chunk).count() && one.rows > 0);
            const rank_state& from = states[one.from];
            if (one.what == payload::q) expect(has(from.queries, one.chunk));
            if (one.what == payload::kv) expect(from.keys == one.chunk);
            // A partial result is sent after all keys of the rank have been attended.
            if (one.what == payload::partial_o) expect(one.to == one.chunk && from.visits[one.chunk] == b);
        }
        under_way.insert(under_way.end(), sent.begin(), sent.end());
        for (int rank = 0; rank < ranks; ++rank) {
            const attention_block block = schedule.block(rank, step);
            if (step >= ranks) {
                expect(block.unmasked_scores() == 0 && block.q_chunk < 0);
                continue;
            }
            rank_state& state = states[rank];
            ++times[block.q_chunk * ranks + block.kv_chunk];
            ++state.visits[block.q_chunk];
            expect(block.unmasked_scores() == 0 || has(state.queries, block.q_chunk));
            expect(block.unmasked_scores() == 0 || state.keys == block.kv_chunk);
            expect((block.q_hop == 0) == (block.q_chunk == rank));
            expect((block.kv_hop == 0) == (block.kv_chunk == rank));
            state.unmasked_scores[block.q_chunk] += block.unmasked_scores();
        }
    }
    CHECK(right);
    CHECK(under_way.empty());
    CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
    // At the end each rank has everything that its own queries see.
    const token_ranges all{{{0, schedule.tokens}, {}}, 1};
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t wanted = 0;
        for (int other = 0; other < ranks; ++other) {
            wanted += unmasked_scores_between(schedule.tokens_of(rank), schedule.tokens_of(other), schedule.mask);
        }
        sum += wanted;
        expect(states[rank].merged + states[rank].unmasked_scores[rank] == wanted);
        expect(static_cast<int>(states[rank].queries.size()) <= a);
    }
    CHECK(right);
    CHECK(sum == unmasked_scores_between(all, all, schedule.mask));
}

}  // namespace

TEST_CASE("each block has exactly one rank, and each transfer arrives in time") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        for (int a = 1; a <= ranks; ++a) {
            if (ranks % a != 0) continue;
            // Lengths that ranks do not divide, and fewer tokens than ranks.
            for (const int tokens : {3 * ranks + 1 + ranks / 2, ranks / 2}) {
                for (const token_placement placement : placements) {
                    INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks, ", tokens, " tokens");
                    test_steps({.tokens = tokens, .ranks = ranks, .q_chunks = a, .placement = placement});
                }
            }
        }
    }
}

TEST_CASE("an empty sequence has all steps and no transfers") {
    for (int ranks = 1; ranks <= 64; ++ranks) {
        const ring_schedule schedule{.tokens = 0, .ranks = ranks, .placement = placements[ranks % 3]};
        test_steps(schedule);
        for (int step = 0; step < schedule.steps(); ++step) CHECK(schedule.sends(0, step).empty());
    }
}

TEST_CASE("every mask, with K and V that rotate only while visible") {
    for (const window_mask& mask : {as_window(full_mask{}), as_window(causal_mask{}), window_mask{0, 0},
                                    window_mask{9, 0}, window_mask{2, 5}, window_mask{0, unbounded}}) {
        for (const token_placement placement : placements) {
            for (const int ranks : {1, 2, 3, 8, 12}) {
                for (int a = 1; a <= ranks; ++a) {
                    if (ranks % a != 0) continue;
                    INFO(name_of(placement), ", ", ranks, " ranks, ", a, " q_chunks, window ", mask.left, " ",
                         mask.right);
                    ring_schedule schedule{
                        .tokens = 5 * ranks + 1, .ranks = ranks, .q_chunks = a, .placement = placement, .mask = mask};
                    test_steps(schedule);
                    schedule.rotation = kv_rotation::while_visible;
                    test_steps(schedule);
                }
            }
        }
    }
}

TEST_CASE("q_chunks = 1 is plain ring attention") {
    constexpr ring_schedule ring{.tokens = 40, .ranks = 4, .sizes = {.head_dim = 8, .head_dim_v = 8}};
    static_assert(ring.steps() == 4);
    static_assert(ring.block(2, 0).kv_chunk == 2);
    static_assert(ring.block(2, 0).kind() == block_kind::partial);
    static_assert(ring.block(2, 1).kv_chunk == 1);
    static_assert(ring.block(2, 1).kind() == block_kind::full);
    static_assert(ring.block(2, 3).kv_chunk == 3);
    static_assert(ring.block(2, 3).kind() == block_kind::skipped);
    const std::vector<transfer> sent = ring.sends(3, 1);
    REQUIRE(sent.size() == 1);
    CHECK(sent[0] == transfer{.from = 3,
                              .to = 0,
                              .what = payload::kv,
                              .chunk = 2,
                              .rows = 10,
                              .first_head = 0,
                              .heads = 1,
                              .post_step = 1,
                              .needed_step = 2,
                              .bytes = 10 * 16 * 2});
    CHECK(ring.sends(3, 3).empty());
}

TEST_CASE("a mesh overlaps its transfers with its steps") {
    // K and V have a full stage to arrive, and the last partial results return before the last step.
    const ring_schedule mesh{.tokens = 36, .ranks = 6, .q_chunks = 2, .placement = token_placement::striped};
    std::map<payload, std::vector<std::pair<int, int>>> when;
    for (int step = 0; step < mesh.steps(); ++step) {
        for (const transfer& one : mesh.sends(3, step)) when[one.what].emplace_back(one.post_step, one.needed_step);
    }
    using times = std::vector<std::pair<int, int>>;
    CHECK(when[payload::kv] == times{{0, 2}, {2, 4}});
    CHECK(when[payload::q] == times{{0, 1}});
    CHECK(when[payload::partial_o] == times{{5, 6}});
    // Groups: queries of adjacent ranks, keys of every second rank.
    CHECK(mesh.block(3, 0).q_chunk == 3);
    CHECK(mesh.block(3, 1).q_chunk == 2);
    CHECK(mesh.block(3, 2).kv_chunk == 1);
    CHECK(mesh.block(3, 4).kv_chunk == 5);
    CHECK(mesh.block(3, 5).q_chunk == 3);
}

TEST_CASE("rejects invalid schedules") {
    const auto refusal = [](const ring_schedule& schedule) {
        return error_message_of([&] { require_schedule(schedule); });
    };
    CHECK(refusal({.tokens = 8, .ranks = 0}) == "ranks: 0; 1 to 536870911 are allowed");
    CHECK(refusal({.tokens = -1}) == "tokens: -1; 0 to 1073741823 are allowed");
    CHECK(refusal({.tokens = 1 << 30}) == "tokens: 1073741824; 0 to 1073741823 are allowed");
    CHECK(refusal({.tokens = 8, .ranks = 6, .q_chunks = 4}) == "q_chunks: 4; must divide the 6 ranks");
    CHECK(refusal({.tokens = 8, .ranks = 6, .q_chunks = 0}) == "q_chunks: 0; must divide the 6 ranks");
    CHECK(refusal({.tokens = 8, .mask = {-1, 0}}) ==
          "mask.left: -1; 0 to 1073741824 is allowed; the maximum means unbounded");
    CHECK(refusal({.tokens = 8, .mask = {4, -2}}) ==
          "mask.right: -2; 0 to 1073741824 is allowed; the maximum means unbounded");
    CHECK(refusal({.tokens = 8, .sizes = {.heads = 6, .kv_heads = 4}}) ==
          "sizes.kv_heads: 4; must divide the 6 query heads");
    CHECK(refusal({.tokens = 8, .sizes = {.heads = 0}}) == "sizes.heads: 0; must be at least 1");
    CHECK(refusal({.tokens = 8, .sizes = {.head_dim = -8}}) == "sizes.head_dim: -8; it must be 0 or more");
    CHECK(refusal({.tokens = 8, .ranks = 3}) == "no error");
}
