// The checker in a test of GoogleTest: one line, which prints the report if it fails.
#include <gtest/gtest.h>

#include "kernel.hpp"

using namespace imbrex;
using namespace imbrex_frameworks;

TEST(checker, correct) {
    EXPECT_EQ(hazard_text(check_correct_kernel()), "");
}

TEST(checker, racing) {  // fails: CTest expects the report
    EXPECT_EQ(hazard_text(check_racing_kernel()), "");
}
