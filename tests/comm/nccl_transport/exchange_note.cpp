// What an error says of an exchange, and when patience is over.
#include <imbrex/comm/nccl_transport/exchange_note.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <numeric>
#include <vector>

using namespace imbrex;
using namespace imbrex::detail;

TEST_CASE("exchange notes: ranks by name") {
    CHECK(named_ranks({3}) == "rank 3");
    CHECK(named_ranks({1, 3}) == "ranks 1 and 3");
    CHECK(named_ranks({0, 1, 3}) == "ranks 0, 1 and 3");
    std::vector<int> many(8);
    std::iota(many.begin(), many.end(), 0);
    CHECK(named_ranks(many) == "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
    many.push_back(8);
    many.push_back(9);
    CHECK(named_ranks(many) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

TEST_CASE("exchange notes: peers once and in order; whoever is waited for is to blame") {
    char byte = 0;
    const exchange_note note = note_of({.step = 3,
                                        .sends = {{5, &byte, 1}, {1, &byte, 1}, {5, &byte, 1}},
                                        .receives = {{4, &byte, 1}, {1, &byte, 1}}});
    CHECK(note.step == 3);
    CHECK(note.peers == std::vector<int>{1, 4, 5});
    CHECK(note.blamed == 4);
    CHECK(described(note) == "the exchange of step 3 with ranks 1, 4 and 5");
    CHECK(note_of({.sends = {{2, &byte, 1}}}).blamed == 2);
}

TEST_CASE("exchange notes: messages of no bytes have no peers") {
    const exchange_note note = note_of({.step = 2, .sends = {{1, nullptr, 0}}, .receives = {{3, nullptr, 0}}});
    CHECK(note.peers.empty());
    CHECK(note.blamed == nobody_in_particular);
    CHECK(described(note) == "the exchange of step 2");
}

TEST_CASE("exchange notes: work of all ranks") {
    const exchange_note start = note_of_all(noted_work::initialisation, before_all_steps, 2, 4);
    CHECK(described(start) == "the initialisation with ranks 0, 1 and 3");
    CHECK(start.blamed == nobody_in_particular);
    CHECK(note_of_all(noted_work::gathering, 0, 0, 2).blamed == 1);
    CHECK(described(note_of_all(noted_work::gathering, 0, 0, 2)) == "the gathering after step 0 with rank 1");
    CHECK(described(note_of_all(noted_work::gathering, before_all_steps, 1, 2)) ==
          "the gathering before the first step with rank 0");
    CHECK(described(note_of_all(noted_work::initialisation, before_all_steps, 0, 1)) == "the initialisation");
}

TEST_CASE("patience: the time starts again when something moves") {
    using std::chrono::milliseconds;
    const patience_clock::time start = std::chrono::steady_clock::now();
    patience_clock clock(milliseconds(100));
    CHECK(!clock.is_over(0, start));
    CHECK(!clock.is_over(0, start + milliseconds(99)));
    CHECK(!clock.is_over(1, start + milliseconds(150)));
    CHECK(!clock.is_over(1, start + milliseconds(249)));
    CHECK(clock.is_over(1, start + milliseconds(250)));
    CHECK(clock.is_over(1, start + milliseconds(1000)));
    CHECK(!clock.is_over(2, start + milliseconds(1000)));
}
