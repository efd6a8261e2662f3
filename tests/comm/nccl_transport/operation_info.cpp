// Error texts of pending operations, and the watchdog timer.
#include <imbrex/comm/nccl_transport/operation_info.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <numeric>
#include <vector>

using namespace imbrex;
using namespace imbrex::detail;

TEST_CASE("operation_info: formats lists of ranks") {
    CHECK(rank_list_text({3}) == "rank 3");
    CHECK(rank_list_text({1, 3}) == "ranks 1 and 3");
    CHECK(rank_list_text({0, 1, 3}) == "ranks 0, 1 and 3");
    std::vector<int> many(8);
    std::iota(many.begin(), many.end(), 0);
    CHECK(rank_list_text(many) == "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
    many.push_back(8);
    many.push_back(9);
    CHECK(rank_list_text(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST_CASE("operation_info: peers are sorted and unique; the first sender is the suspect") {
    char byte = 0;
    const operation_info info = operation_info_of({.step = 3,
                                                   .sends = {{5, &byte, 1}, {1, &byte, 1}, {5, &byte, 1}},
                                                   .receives = {{4, &byte, 1}, {1, &byte, 1}}});
    CHECK(info.step == 3);
    CHECK(info.peers == std::vector<int>{1, 4, 5});
    CHECK(info.suspect_rank == 4);
    CHECK(describe(info) == "the send/recv group of step 3 with ranks 1, 4 and 5");
    CHECK(operation_info_of({.sends = {{2, &byte, 1}}}).suspect_rank == 2);
}

TEST_CASE("operation_info: empty messages have no peers") {
    const operation_info info =
        operation_info_of({.step = 2, .sends = {{1, nullptr, 0}}, .receives = {{3, nullptr, 0}}});
    CHECK(info.peers.empty());
    CHECK(info.suspect_rank == unknown_rank);
    CHECK(describe(info) == "the send/recv group of step 2");
}

TEST_CASE("operation_info: describes collectives") {
    const operation_info start = collective_operation_info(operation_kind::initialisation, before_first_step, 2, 4);
    CHECK(describe(start) == "the initialisation with ranks 0, 1 and 3");
    CHECK(start.suspect_rank == unknown_rank);
    CHECK(collective_operation_info(operation_kind::all_gather, 0, 0, 2).suspect_rank == 1);
    CHECK(describe(collective_operation_info(operation_kind::all_gather, 0, 0, 2)) ==
          "the all-gather after step 0 with rank 1");
    CHECK(describe(collective_operation_info(operation_kind::all_gather, before_first_step, 1, 2)) ==
          "the all-gather before the first step with rank 0");
    CHECK(describe(collective_operation_info(operation_kind::initialisation, before_first_step, 0, 1)) ==
          "the initialisation");
}

TEST_CASE("watchdog_timer: restarts when the oldest operation completes") {
    using std::chrono::milliseconds;
    const watchdog_timer::time start = std::chrono::steady_clock::now();
    watchdog_timer clock(milliseconds(100));
    CHECK(!clock.expired(0, start));
    CHECK(!clock.expired(0, start + milliseconds(99)));
    CHECK(!clock.expired(1, start + milliseconds(150)));
    CHECK(!clock.expired(1, start + milliseconds(249)));
    CHECK(clock.expired(1, start + milliseconds(250)));
    CHECK(clock.expired(1, start + milliseconds(1000)));
    CHECK(!clock.expired(2, start + milliseconds(1000)));
}
