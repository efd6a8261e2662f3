// A plan is what the schedule says, with what a step waits for beside what it starts.
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

TEST_CASE("a plan is what the schedule says") {
    static_assert(attention_schedule<ring_schedule>);
    static_assert(attention_schedule<ulysses_schedule>);
    for (const int a : {1, 2, 3, 6}) test_plan(ring_schedule{.tokens = 29, .ranks = 6, .q_chunks = a});
    test_plan(ulysses_schedule{.tokens = 29, .ranks = 3, .sizes = {.heads = 6, .kv_heads = 3}});
    test_plan(ring_schedule{});
}

TEST_CASE("no plan for a rank that does not exist, or of no schedule") {
    const ring_schedule schedule{.tokens = 12, .ranks = 4};
    CHECK(error_message_of([&] { plan_of(schedule, 4); }) == "rank: 4; there are 4 ranks, 0 is the first");
    CHECK(error_message_of([&] { plan_of(schedule, -1); }) == "rank: -1; there are 4 ranks, 0 is the first");
    CHECK(error_message_of([] { plan_of(ring_schedule{.ranks = 4, .q_chunks = 3}, 0); }) ==
          "q_chunks: 3; a divisor of the 4 ranks is needed");
    CHECK(error_message_of([] { load_of(ulysses_schedule{.ranks = 2}); }) ==
          "ranks: 2; heads are exchanged for tokens, and there are 1 heads of keys: a ring or a mesh takes more ranks "
          "than that");
}
