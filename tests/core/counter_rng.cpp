// counter_rng: reproducible, uniform, independent between streams, and exponential values accurate near zero.
#include <imbrex/core/counter_rng.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

using namespace imbrex;

TEST_CASE("random bits depend only on seed, position and counter") {
    const counter_rng one = counter_rng::of(5, 6);
    CHECK(one.bits(7) == counter_rng::of(5, 6).bits(7));
    std::set<std::uint32_t> all;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        for (std::uint64_t position = 0; position < 10; ++position) {
            for (std::uint32_t number = 0; number < 10; ++number) {
                all.insert(counter_rng::of(seed, position).bits(number));
            }
        }
    }
    CHECK(all.size() >= 999);
}

TEST_CASE("every bit is set half of the time and is independent of other streams") {
    constexpr int count = 20000;
    const counter_rng one = counter_rng::of(1, 1), next = counter_rng::of(1, 2), other = counter_rng::of(2, 1);
    // Five standard deviations for 32 * 32 counts with probability one half.
    const double bound = 5 * std::sqrt(count) / 2;
    bool even = true, apart = true;
    for (int bit = 0; bit < 32; ++bit) {
        for (int second = 0; second < 32; ++second) {
            int set = 0, same_next = 0, same_other = 0, same_neighbour = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                const std::uint32_t own = one.bits(i) >> bit & 1;
                set += static_cast<int>(own);
                same_next += static_cast<int>(own ^ (next.bits(i) >> second & 1));
                same_other += static_cast<int>(own ^ (other.bits(i) >> second & 1));
                same_neighbour += static_cast<int>(own ^ (one.bits(i + 1) >> second & 1));
            }
            even = even && std::fabs(set - count / 2) < bound;
            apart = apart && std::fabs(same_next - count / 2) < bound && std::fabs(same_other - count / 2) < bound &&
                    std::fabs(same_neighbour - count / 2) < bound;
        }
    }
    CHECK(even);
    CHECK(apart);
}

TEST_CASE("exponential values have the right distribution and precision") {
    double worst = 0;
    for (std::uint64_t bits = 1; bits < 0xffff0000u; bits = bits * 33 / 32 + 1) {
        const auto own = static_cast<std::uint32_t>(bits);
        const double wanted = -std::log1p(-static_cast<double>(uniform_of(own)));
        worst = std::fmax(worst, std::fabs(exponential_of(own) / wanted - 1));
    }
    CHECK(worst < 1e-6);
    CHECK(exponential_of(0) > 0);
    CHECK(std::isfinite(exponential_of(0xffffffffu)));
    CHECK(exponential_of(0xffffffffu) > 16);
    double sum = 0;
    constexpr int count = 100000;
    const counter_rng stream = counter_rng::of(3, 4);
    for (std::uint32_t i = 0; i < count; ++i) sum += static_cast<double>(exponential_of(stream.bits(i)));
    CHECK(std::fabs(sum / count - 1) < 5 / std::sqrt(count));
}
