// plan_of: the blocks and transfers of the schedule, with the arrivals of each step.
#include "worlds.hpp"

#include <imbrex/comm/schedule.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

using namespace imbrex;
using imbrex_test::error_message_of;

namespace {

template <class Schedule>
void test_plan(const Schedule& schedule) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const rank_plan plan = plan_of(schedule, rank);
        REQUIRE(static_cast<int>(plan.steps.size()) == schedule.steps());
        CHECK(plan.rank == rank);
        CHECK(plan.tokens.count() == schedule.tokens_of(rank).count());
        std::size_t received = 0, arrived = plan.arrivals.size();
        for (int step = 0; step < schedule.steps(); ++step) {
            const planned_step& planned = plan.steps[step];
            CHECK(planned.sends == schedule.sends(rank, step));
            CHECK(planned.receives == schedule.receives(rank, step));
            CHECK(planned.block.work() == schedule.block(rank, step).work());
            received += planned.receives.size();
            arrived += planned.arrivals.size();
            for (const transfer& one : planned.arrivals) CHECK(one.needed_step == step);
        }
        for (const transfer& one : plan.arrivals) CHECK(one.needed_step == schedule.steps());
        CHECK(arrived == received);
    }
}

}  // namespace

TEST_CASE("a plan matches its schedule") {
    static_assert(attention_schedule<ring_schedule>);
    static_assert(attention_schedule<ulysses_schedule>);
    for (const int a : {1, 2, 3, 6}) test_plan(ring_schedule{.tokens = 29, .ranks = 6, .q_chunks = a});
    test_plan(ulysses_schedule{.tokens = 29, .ranks = 3, .sizes = {.heads = 6, .kv_heads = 3}});
    test_plan(ring_schedule{});
}

TEST_CASE("plan_of rejects an invalid rank or schedule") {
    const ring_schedule schedule{.tokens = 12, .ranks = 4};
    CHECK(error_message_of([&] { plan_of(schedule, 4); }) == "rank: 4; there are 4 ranks, 0 is the first");
    CHECK(error_message_of([&] { plan_of(schedule, -1); }) == "rank: -1; there are 4 ranks, 0 is the first");
    CHECK(error_message_of([] { plan_of(ring_schedule{.ranks = 4, .q_chunks = 3}, 0); }) ==
          "q_chunks: 3; must divide the 4 ranks");
    CHECK(error_message_of([] { load_of(ulysses_schedule{.ranks = 2}); }) ==
          "ranks: 2; Ulysses allows at most one rank per KV head, and there are 1 KV heads; use a ring or a mesh for "
          "more ranks");
}
