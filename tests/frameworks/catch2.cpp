// The checker in a test of Catch2 (version 2 or 3): one line, which prints the report if it fails.
#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_test_macros.hpp>
#else
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif

#include "kernel.hpp"

using namespace imbrex;
using namespace imbrex_frameworks;

TEST_CASE("correct") {
    CHECK(hazard_text(check_correct_kernel()) == "");
}

TEST_CASE("racing") {  // fails: CTest expects the report
    CHECK(hazard_text(check_racing_kernel()) == "");
}
