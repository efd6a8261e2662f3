// In the host world the result of a row of x has the same bits whatever rows are beside it: one row, two, and enough
// that weights are converted to float first, with all weight formats; rows longer than a reduction block and longer
// than a staging block.
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include "kernels/elementwise.hpp"
#include "worlds.hpp"

#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Weights>
struct stored_weights {
    std::vector<typename Weights::element> values;
    std::vector<float> scales;

    stored_weights(const std::vector<float>& from, int n, int k) : values(from.size()), scales(from.size()) {
        if constexpr (std::is_same_v<Weights, e4m3_weight_rows>) {
            quantise_rows(e4m3_rows_output{values.data(), scales.data()}, from.data(), n, k);
        } else {
            for (std::size_t i = 0; i < from.size(); ++i) values[i] = convert<typename Weights::element>(from[i]);
        }
    }
    Weights view(int n, int k) const {
        if constexpr (std::is_same_v<Weights, e4m3_weight_rows>) {
            return {values.data(), scales.data(), n, k};
        } else {
            return make_weight_rows(values.data(), n, k);
        }
    }
};
template <class Scale>
struct stored_weights<int8_weight_rows<activation_quantisation::int8, Scale>> {
    std::vector<std::int8_t> values;
    std::vector<Scale> scales;

    stored_weights(const std::vector<float>& from, int n, int k)
        : values(int8_bytes(n, k)), scales(group_scale_count(n, k)) {
        quantise_rows(int8_rows_output{values.data(), scales.data()}, from.data(), n, k);
    }
    int8_weight_rows<activation_quantisation::int8, Scale> view(int n, int k) const {
        return {values.data(), scales.data(), n, k};
    }
};
template <class Scale>
struct stored_weights<int4_weight_rows<activation_quantisation::int8, Scale>> {
    std::vector<std::uint8_t> values;
    std::vector<Scale> scales;

    stored_weights(const std::vector<float>& from, int n, int k)
        : values(int4_bytes(n, k)), scales(group_scale_count(n, k)) {
        quantise_rows(int4_rows_output{values.data(), scales.data()}, from.data(), n, k);
    }
    int4_weight_rows<activation_quantisation::int8, Scale> view(int n, int k) const {
        return {values.data(), scales.data(), n, k};
    }
};

template <class Weights>
std::vector<float> product(const float* x, int m, const Weights& weights, const float* bias) {
    const int n = static_cast<int>(weights.rows);
    std::vector<float> out(static_cast<std::size_t>(m) * n);
    linear<float, Weights, float>::launch(world::host, {.x = as_rows<const float>(x, m, weights.columns),
                                                        .weights = weights,
                                                        .bias = bias,
                                                        .out = as_rows(out.data(), m, n)});
    return out;
}

// Every row alone, and then every range of consecutive rows.
template <class Weights>
void check_neighbours(int most, int n, int k) {
    CAPTURE(n);
    CAPTURE(k);
    std::vector<float> x(static_cast<std::size_t>(most) * k), w(static_cast<std::size_t>(n) * k), bias(n);
    fill_random(x, 1, -2, 2);
    fill_random(w, 2);
    fill_random(bias, 3);
    const stored_weights<Weights> stored(w, n, k);
    const Weights weights = stored.view(n, k);
    std::vector<float> alone;
    for (int row = 0; row < most; ++row) {
        const std::vector<float> one = product(x.data() + static_cast<std::size_t>(row) * k, 1, weights, bias.data());
        alone.insert(alone.end(), one.begin(), one.end());
    }
    std::mt19937 random(static_cast<unsigned>(n + k));
    for (int m = 2; m <= most; m += m < 9 ? 1 : 5) {
        CAPTURE(m);
        const std::size_t first = random() % static_cast<unsigned>(most - m + 1);
        const std::vector<float> together = product(x.data() + first * k, m, weights, bias.data());
        CHECK(std::memcmp(together.data(), alone.data() + first * n, together.size() * sizeof(float)) == 0);
    }
}

template <class Weights>
void check_all_sizes(bool groups) {
    check_neighbours<Weights>(40, 37, 96);
    check_neighbours<Weights>(11, 6, groups ? 416 : 411);
    check_neighbours<Weights>(36, 5, 1024);
    check_neighbours<Weights>(9, 7, groups ? 1056 : 1025);
    check_neighbours<Weights>(7, 9, groups ? 4864 : 4863);
    check_neighbours<Weights>(6, 3, 8192 + 1024 + 32);
}

}  // namespace

TEST_CASE("float weights: a row has the same bits alone and beside others") {
    check_all_sizes<unquantised_weight_rows<float>>(false);
}
TEST_CASE("bf16, fp16 and e4m3 weights: a row has the same bits alone and beside others") {
    check_all_sizes<unquantised_weight_rows<bf16>>(false);
    check_all_sizes<unquantised_weight_rows<fp16>>(false);
    check_all_sizes<e4m3_weight_rows>(false);
}
TEST_CASE("int8 activations: a row has the same bits alone and beside others") {
    check_all_sizes<int8_weight_rows<activation_quantisation::int8, bf16>>(true);
    check_all_sizes<int8_weight_rows<activation_quantisation::int8, fp16>>(true);
    check_all_sizes<int4_weight_rows<activation_quantisation::int8, bf16>>(true);
    check_all_sizes<int4_weight_rows<activation_quantisation::int8, float>>(true);
}
