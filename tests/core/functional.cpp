// Function objects for reductions and maps.
#include <imbrex/core/functional.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace imbrex;

static_assert(functional::add{}(2, 3) == 5 && functional::subtract{}(2, 3) == -1 && functional::multiply{}(2, 3) == 6 &&
              functional::divide{}(7, 2) == 3);
static_assert(functional::divide{}(7.0f, 2.0f) == 3.5f && functional::add{}(0.5, 0.25) == 0.75);
static_assert(functional::maximum{}(2, 3) == 3 && functional::maximum{}(3, 2) == 3 &&
              functional::minimum{}(2, 3) == 2 && functional::minimum{}(3, 2) == 2);
static_assert(functional::maximum{}(-1.5f, -2.5f) == -1.5f && functional::minimum{}(-1.5f, -2.5f) == -2.5f);

TEST_CASE("maximum and minimum return the number if the other operand is NaN") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(functional::maximum{}(nan, 1.0f) == 1.0f);
    CHECK(functional::maximum{}(1.0f, nan) == 1.0f);
    CHECK(functional::minimum{}(nan, 1.0f) == 1.0f);
    CHECK(functional::minimum{}(1.0f, nan) == 1.0f);
    CHECK(std::isnan(functional::maximum{}(nan, nan)));
    CHECK(std::isnan(functional::minimum{}(nan, nan)));
    CHECK(functional::maximum{}(-infinity, nan) == -infinity);
    CHECK(functional::maximum{}(-infinity, -3.0f) == -3.0f);
    CHECK(functional::minimum{}(infinity, 3.0f) == 3.0f);
}
