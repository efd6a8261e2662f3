// Schedules as text.
#include <doctest/doctest.h>

#include <imbrex/hw/host/decisions.hpp>

#include <string>

using namespace imbrex;

TEST_CASE("a schedule is read back from its text") {
    const std::string text = "17: @0>3, 2@5>3, 1.0, 2@9+1>1.0, 1/2@5>3, 1/4.2";
    const replayed_schedule made = replayed_schedule::parse(text);
    CHECK(made.seed == 17);
    REQUIRE(made.decisions.size() == 6);
    CHECK(made.decisions[0] == schedule_decision{0, -1, 0, 0, 3, -1});
    CHECK(made.decisions[1] == schedule_decision{0, 2, 5, 0, 3, -1});
    CHECK(made.decisions[2] == schedule_decision{0, -1, -1, 0, 1, 0});
    CHECK(made.decisions[3] == schedule_decision{0, 2, 9, 1, 1, 0});
    CHECK(made.decisions[4] == schedule_decision{1, 2, 5, 0, 3, -1});
    CHECK(made.decisions[5] == schedule_decision{1, -1, -1, 0, 4, 2});
    CHECK(made.decisions[2].is_late_completion());
    CHECK(!made.decisions[3].is_late_completion());
    CHECK(made.text() == text);
    CHECK(replayed_schedule::parse("18446744073709551615:").text() == "18446744073709551615:");
}

TEST_CASE("rejects other text") {
    for (const char* text : {"", "17", "x:", "1: 2", "1: 2@", "1: 2@3", "1: 2@3>", "1: 1/", "1: 2@3>4 5", "1: ,"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(replayed_schedule::parse(text), invalid_argument);
    }
    CHECK_THROWS_WITH_AS(replayed_schedule::parse("1: 2@3"),
                         "replay: \"1: 2@3\" is not a schedule: unexpected character at 6", invalid_argument);
}
