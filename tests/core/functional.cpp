// The small functions that reductions and maps are given.
#include <imbrex/core/functional.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace imbrex;

static_assert(add{}(2, 3) == 5 && subtract{}(2, 3) == -1 && multiply{}(2, 3) == 6 && divide{}(7, 2) == 3);
static_assert(divide{}(7.0f, 2.0f) == 3.5f && add{}(0.5, 0.25) == 0.75);
static_assert(maximum{}(2, 3) == 3 && maximum{}(3, 2) == 3 && minimum{}(2, 3) == 2 && minimum{}(3, 2) == 2);
static_assert(maximum{}(-1.5f, -2.5f) == -1.5f && minimum{}(-1.5f, -2.5f) == -2.5f);

TEST_CASE("maximum and minimum take the number where the other is not one") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    CHECK(maximum{}(nan, 1.0f) == 1.0f);
    CHECK(maximum{}(1.0f, nan) == 1.0f);
    CHECK(minimum{}(nan, 1.0f) == 1.0f);
    CHECK(minimum{}(1.0f, nan) == 1.0f);
    CHECK(std::isnan(maximum{}(nan, nan)));
    CHECK(std::isnan(minimum{}(nan, nan)));
    CHECK(maximum{}(-infinity, nan) == -infinity);
    CHECK(maximum{}(-infinity, -3.0f) == -3.0f);
    CHECK(minimum{}(infinity, 3.0f) == 3.0f);
}
