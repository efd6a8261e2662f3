#include <imbrex/core/ceil_div.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <type_traits>

using namespace imbrex;

TEST_CASE("ceil_div rounds up, in the wider of both types") {
    CHECK(ceil_div(0, 64) == 0);
    CHECK(ceil_div(1, 64) == 1);
    CHECK(ceil_div(64, 64) == 1);
    CHECK(ceil_div(65, 64) == 2);
    CHECK(ceil_div(std::int64_t{1} << 40, 3) == ((std::int64_t{1} << 40) + 2) / 3);
    static_assert(std::is_same_v<decltype(ceil_div(std::int64_t{1}, 1)), std::int64_t>);
}
