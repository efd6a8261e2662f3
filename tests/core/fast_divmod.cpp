// fast_divmod against the compiler's division at critical numbers: multiples of the divisor and their neighbours.
#include <imbrex/core/fast_divmod.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <random>

using imbrex::fast_divmod;

namespace {

int wrong_quotients(int divisor) {
    constexpr std::int64_t most = 2147483647;
    const fast_divmod by(divisor);
    std::mt19937 random(static_cast<std::uint32_t>(divisor));
    int wrong = 0;
    const auto check = [&](std::int64_t number) {
        if (number < 0 || number > most) return;
        wrong += by.quotient(static_cast<int>(number)) != number / divisor;
    };
    check(most);
    for (int i = 0; i < 1000; ++i) {
        const std::int64_t multiple = (i < 100 ? i : random() % (most / divisor + 1)) * std::int64_t{divisor};
        for (int beside = -1; beside <= 1; ++beside) {
            check(multiple + beside);
            check(most / divisor * divisor - i * std::int64_t{divisor} + beside);
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE("quotients are exact for all divisors and numbers") {
    for (int divisor = 1; divisor <= 3000; ++divisor) {
        CAPTURE(divisor);
        CHECK(wrong_quotients(divisor) == 0);
    }
    for (int power = 12; power <= 30; ++power) {
        for (int beside = -3; beside <= 3; ++beside) {
            const int divisor = (1 << power) + beside;
            CAPTURE(divisor);
            CHECK(wrong_quotients(divisor) == 0);
        }
    }
    CHECK(wrong_quotients(2147483647) == 0);
    CHECK(fast_divmod(48).value == 48);
    CHECK(fast_divmod().quotient(17) == 17);
}
