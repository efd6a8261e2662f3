// The checker in a test of doctest: one line, which prints the report if it fails.
#include <doctest/doctest.h>

#include "kernel.hpp"

using namespace imbrex;
using namespace imbrex_frameworks;

TEST_CASE("correct") {
    CHECK(hazard_text(check_correct_kernel()) == "");
}

TEST_CASE("racing") {  // fails: CTest expects the report
    CHECK(hazard_text(check_racing_kernel()) == "");
}
