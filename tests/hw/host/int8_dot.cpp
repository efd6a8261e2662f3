// The int8 dot product, with and without a processor instruction, compared with loops.
#include <imbrex/hw/host/int8_dot.hpp>

#include <doctest/doctest.h>

#include <cstring>

using namespace imbrex::hw;

TEST_CASE("the int8 dot product is exact, at the ends of the range too") {
    using products = int8_dot<native_simd>;
    constexpr int words = sizeof(products::words) / 4;
    // If both sides are signed, the left one ends at 127.
    constexpr int largest = products::offset_of_signed == 0 ? 127 : 255;
    std::uint8_t a[4 * words];
    std::int8_t b[4 * words];
    std::int32_t found[words], wanted[words];
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 4 * words; ++i) {
            a[i] = static_cast<std::uint8_t>(round == 0 ? largest : (i * 89 + round * 31) % (largest + 1));
            b[i] = static_cast<std::int8_t>(round == 0 ? (i % 8 < 4 ? 127 : -127) : (i * 57 + round * 13) % 255 - 127);
        }
        for (int i = 0; i < words; ++i) {
            wanted[i] = round - 7;
            for (int j = 0; j < 4; ++j) wanted[i] += int{a[4 * i + j]} * b[4 * i + j];
        }
        products::words left, right;
        std::memcpy(&left, a, sizeof left);
        std::memcpy(&right, b, sizeof right);
        products::integers sums = products::integers{} + (round - 7);
        products::add(sums, left, right);
        std::memcpy(found, &sums, sizeof found);
        CHECK(std::memcmp(found, wanted, sizeof found) == 0);
    }
}

template <class Products>
void check_sum_each() {
    using integers = typename Products::integers;
    if constexpr (sizeof(integers) == 16) {
        const integers values[4] = {{1, 20, 300, 4000}, {-1, 0, 0, 7}, {5, 6, 7, 8}, {1 << 30, 1 << 29, -9, 2}};
        const integers found = Products::sum_each(values);
        const std::int32_t wanted[4] = {4321, 6, 26, (1 << 30) + (1 << 29) - 7};
        CHECK(std::memcmp(&found, wanted, sizeof wanted) == 0);
    } else {
        MESSAGE("skipped: vectors are wider than four words here");
    }
}
TEST_CASE("sum_each of four vectors of four") {
    check_sum_each<int8_dot<native_simd>>();
}
