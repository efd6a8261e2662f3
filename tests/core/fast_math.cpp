// fast_exp2 and fast_log against the C library in double precision.
#include <imbrex/core/fast_math.hpp>

#include <doctest/doctest.h>

#include <cmath>

using namespace imbrex;

TEST_CASE("fast_exp2 and fast_log stay within their error bounds") {
    double worst = 0;
    for (float x = -124; x < 100; x += 0.01171f) {
        worst = std::fmax(worst, std::fabs(fast_exp2(x) / std::exp2(static_cast<double>(x)) - 1));
    }
    CHECK(worst < 3e-7);
    CHECK(fast_exp2(0) == 1);
    CHECK(fast_exp2(-1e30f) == 0x1p-125f);
    CHECK(fast_exp2(-INFINITY) == 0x1p-125f);
    worst = 0;
    for (float x = 1e-30f; x < 1e30f; x *= 1.00391f) {
        const double wanted = std::log(static_cast<double>(x));
        worst = std::fmax(worst, std::fabs(fast_log(x) - wanted) / std::fmax(std::fabs(wanted), 1e-3));
    }
    CHECK(worst < 3e-7);
    CHECK(fast_log(1) == 0);
}
