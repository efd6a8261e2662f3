// Quantisation of float rows to int8, int4 and e4m3: error bounds, exact cases, zeros, huge and tiny values, argument
// checks.
#include <imbrex/kernels/linear/quantise.hpp>

#include "worlds.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr int group = weight_group_size;

template <class Scale>
struct int8_result {
    std::vector<std::int8_t> values;
    std::vector<Scale> scales;
    int8_result(const std::vector<float>& from, int n, int k)
        : values(int8_bytes(n, k)), scales(group_scale_count(n, k)) {
        quantise_rows(int8_rows_output{values.data(), scales.data()}, from.data(), n, k);
    }
    double scale(std::size_t i) const { return convert<float>(scales[i / group]); }
    double value(std::size_t i) const { return scale(i) * values[i]; }
};

template <class Scale>
struct int4_result {
    std::vector<std::uint8_t> values;
    std::vector<Scale> scales;
    int4_result(const std::vector<float>& from, int n, int k)
        : values(int4_bytes(n, k)), scales(group_scale_count(n, k)) {
        quantise_rows(int4_rows_output{values.data(), scales.data()}, from.data(), n, k);
    }
    double scale(std::size_t i) const { return convert<float>(scales[i / group]); }
    int steps(std::size_t i) const {
        const std::uint8_t both = values[i / group * 16 + i % 16];
        return (i % group < 16 ? both & 15 : both >> 4) - 8;
    }
    double value(std::size_t i) const { return scale(i) * steps(i); }
};

std::vector<float> normal_numbers(std::size_t count, std::uint32_t seed, float spread = 0.02f) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> number(0, spread);
    std::vector<float> values(count);
    for (float& one : values) one = number(generator);
    return values;
}

template <class Result>
double mean_squared_error(const Result& result, const std::vector<float>& from) {
    double sum = 0;
    for (std::size_t i = 0; i < from.size(); ++i) sum += std::pow(result.value(i) - from[i], 2);
    return sum / static_cast<double>(from.size());
}

template <class Scale>
void check_int8(int n, int k, std::uint32_t seed) {
    const std::vector<float> from = normal_numbers(static_cast<std::size_t>(n) * k, seed);
    const int8_result<Scale> result(from, n, k);
    bool near = true, small = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
        near = near && std::fabs(result.value(i) - from[i]) <= 0.5 * result.scale(i) * (1 + 1e-6);
        float largest = 0;
        for (int j = 0; j < group; ++j) largest = std::max(largest, std::fabs(from[i / group * group + j]));
        // No larger than necessary, except for the rounding of the scale.
        small = small && result.scale(i) <= largest / 127 * (1 + 1.0 / 128);
    }
    CHECK(near);
    CHECK(small);
}

}  // namespace

TEST_CASE("int8: the error is at most half a scale") {
    check_int8<bf16>(5, 96, 1);
    check_int8<float>(5, 96, 2);
    check_int8<fp16>(5, 96, 3);
}

TEST_CASE("int8 and int4: multiples of a scale are exact") {
    std::vector<float> eight(64), four(64);
    for (int i = 0; i < 64; ++i) {
        eight[i] = 0.25f * static_cast<float>(i % group == 0 ? 127 : (i * 37) % 255 - 127);
        four[i] = 0.5f * static_cast<float>(i % 16 - 8);
    }
    const int8_result<bf16> of_eight(eight, 2, 32);
    const int4_result<bf16> of_four(four, 1, 64);
    bool same = true;
    for (int i = 0; i < 64; ++i) same = same && of_eight.value(i) == eight[i] && of_four.value(i) == four[i];
    CHECK(same);
}

TEST_CASE("int4: the layout of a group is the documented one, and a group that reaches +8 flips its sign") {
    std::vector<float> from(32);
    for (int i = 0; i < 32; ++i) from[i] = static_cast<float>(8 - i % 16);
    const int4_result<float> result(from, 1, 32);
    CHECK(result.scales[0] == -1.0f);
    bool same = true;
    for (int i = 0; i < 32; ++i) same = same && result.value(i) == from[i];
    CHECK(same);
}

TEST_CASE("int4: the scale minimises the squared error and beats that of the largest magnitude") {
    const std::vector<float> from = normal_numbers(64 * 256, 4);
    const int4_result<bf16> result(from, 64, 256);
    double simple = 0;
    for (std::size_t first = 0; first < from.size(); first += group) {
        float largest = 0;
        for (int i = 0; i < group; ++i) largest = std::max(largest, std::fabs(from[first + i]));
        const double scale = largest / 7;
        for (int i = 0; i < group; ++i) {
            simple += std::pow(std::nearbyint(from[first + i] / scale) * scale - from[first + i], 2);
        }
    }
    simple /= static_cast<double>(from.size());
    CHECK(mean_squared_error(result, from) < 0.8 * simple);
    // About a tenth of the standard deviation of the weights.
    CHECK(std::sqrt(mean_squared_error(result, from)) < 0.1 * 0.02);
    // Clipping stays within the range of the search.
    bool near = true;
    for (std::size_t i = 0; i < from.size(); ++i) {
        near = near && std::fabs(result.value(i) - from[i]) <= 1.6 * std::fabs(result.scale(i));
    }
    CHECK(near);
}

TEST_CASE("e4m3: the largest magnitude of a row becomes 448, others keep their relative precision") {
    const int n = 3, k = 100;
    const std::vector<float> from = normal_numbers(n * k, 5);
    std::vector<e4m3> values(n * k);
    std::vector<float> scales(n);
    quantise_rows(e4m3_rows_output{values.data(), scales.data()}, from.data(), n, k);
    bool near = true;
    for (int row = 0; row < n; ++row) {
        float most = 0;
        for (int i = 0; i < k; ++i) {
            const double value = static_cast<double>(scales[row]) * convert<float>(values[row * k + i]);
            const double error = std::fabs(value - from[row * k + i]);
            // Half a unit in the last of three mantissa bits, or half of the smallest subnormal.
            near = near && error <= std::max(std::fabs(from[row * k + i]) / 16, scales[row] * 0x1p-10f) * (1 + 1e-5);
            most = std::max(most, std::fabs(convert<float>(values[row * k + i])));
        }
        CHECK(most == 448.0f);
    }
    CHECK(near);
}

TEST_CASE("zeros stay zero, huge and tiny values stay finite") {
    const std::vector<float> zeros(32, 0.0f);
    CHECK(int8_result<bf16>(zeros, 1, 32).value(5) == 0);
    CHECK(int4_result<bf16>(zeros, 1, 32).value(5) == 0);
    for (const float largest : {3.4e38f, 1e-30f, 1e-44f}) {
        CAPTURE(largest);
        std::vector<float> from(32, -largest / 3);
        from[7] = largest;
        const int8_result<bf16> eight(from, 1, 32);
        const int4_result<bf16> four(from, 1, 32);
        bool right = true;
        for (int i = 0; i < 32; ++i) {
            right = right && std::fabs(eight.value(i) - from[i]) <= largest;
            right = right && std::fabs(four.value(i) - from[i]) <= largest;
        }
        CHECK(right);
        if (largest > 1e-40f) {
            CHECK(std::fabs(eight.value(7) - largest) <= 0.005 * largest);
            CHECK(std::fabs(four.value(7) - largest) <= 0.15 * largest);
        }
        std::vector<e4m3> values(32);
        float scale = 0;
        quantise_rows(e4m3_rows_output{values.data(), &scale}, from.data(), 1, 32);
        CHECK(std::isfinite(scale * convert<float>(values[7])));
    }
}

TEST_CASE("an fp16 scale saturates at 65504, and values clip") {
    std::vector<float> from(32, 1.0f);
    from[0] = 1e9f;
    const int8_result<fp16> eight(from, 1, 32);
    CHECK(eight.value(0) == doctest::Approx(65504.0 * 127));
    const int4_result<fp16> four(from, 1, 32);
    CHECK(std::isfinite(four.value(0)));
}

TEST_CASE("accepts a row stride, and zero rows") {
    const std::vector<float> packed = normal_numbers(3 * 64, 6);
    std::vector<float> apart(3 * 70, NAN);
    for (int row = 0; row < 3; ++row) {
        for (int i = 0; i < 64; ++i) apart[row * 70 + i] = packed[row * 64 + i];
    }
    const int8_result<bf16> wanted(packed, 3, 64);
    std::vector<std::int8_t> values(int8_bytes(3, 64));
    std::vector<bf16> scales(group_scale_count(3, 64));
    quantise_rows(int8_rows_output{values.data(), scales.data()}, apart.data(), 3, 64, 70);
    CHECK(values == wanted.values);
    quantise_rows(int8_rows_output<bf16>{nullptr, nullptr}, nullptr, 0, 64);
    quantise_rows(e4m3_rows_output{nullptr, nullptr}, nullptr, 4, 0);
}

TEST_CASE("rejects non-finite weights with their row and column, and invalid arguments") {
    std::vector<std::int8_t> eight(128);
    std::vector<std::uint8_t> four(64);
    std::vector<e4m3> small(128);
    std::vector<bf16> scales(4);
    std::vector<float> row_scales(2), from(128, 1.0f);
    from[64 + 9] = NAN;
    CHECK(error_message_of([&] {
              quantise_rows(int8_rows_output{eight.data(), scales.data()}, from.data(), 2, 64);
          }) == "weights[1, 9]: nan; weights are finite");
    from[64 + 9] = -INFINITY;
    CHECK(error_message_of([&] {
              quantise_rows(int4_rows_output{four.data(), scales.data()}, from.data(), 2, 64);
          }) == "weights[1, 9]: -inf; weights are finite");
    CHECK(error_message_of([&] {
              quantise_rows(e4m3_rows_output{small.data(), row_scales.data()}, from.data(), 2, 64);
          }) == "weights[1, 9]: -inf; weights are finite");
    CHECK(error_message_of([&] {
              quantise_rows(int8_rows_output{eight.data(), scales.data()}, from.data(), 2, 60);
          }) == "k: 60; must be a multiple of the group size, 32");
    CHECK(error_message_of([&] {
              quantise_rows(int8_rows_output{eight.data(), scales.data()}, from.data(), -1, 64);
          }) == "n: -1; must not be negative");
    CHECK(error_message_of([&] {
              quantise_rows(e4m3_rows_output{small.data(), nullptr}, from.data(), 2, 64);
          }) == "values, scales: null; there must be memory for 2 x 64 numbers");
}
