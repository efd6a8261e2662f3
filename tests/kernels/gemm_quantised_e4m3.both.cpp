// e4m3 weights with a scale per row in the launcher for quantised weights: few and many rows, scaled before a bias and
// before a GLU, compared with float64 over every e4m3 value; NaN is rejected.
#include <imbrex/kernels/gemm_quantised.hpp>

#include "worlds.hpp"

#include <cmath>
#include <random>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In>
struct random_problem {
    using weights = e4m3_weights<In, 128>;
    int m, rows, k;
    std::vector<e4m3> values;
    std::vector<typename weights::weight_tile> packed;
    buffer<typename weights::weight_tile> parts;
    buffer<In> a;
    buffer<float> scales, bias;

    random_problem(world where, int m, int rows, int k)
        : m(m),
          rows(rows),
          k(k),
          values(static_cast<std::size_t>(rows) * k),
          parts(where, packed_tile_count<weights>(rows, k)),
          a(where, static_cast<std::size_t>(m) * k),
          scales(where, rows),
          bias(where, rows) {
        std::mt19937 random(3);
        for (e4m3& value : values) {
            const e4m3 any = e4m3::from_bits(static_cast<std::uint8_t>(random()));
            value = any.is_nan() ? e4m3(0.0f) : any;
        }
        parts.values = pack_weights<weights>(values.data(), nullptr, rows, k);
        fill_random(a.values, 1);
        fill_random(scales.values, 2, 0.001f, 0.01f);
        fill_random(bias.values, 4);
    }
    gemm_problem<In, float> with(int n, buffer<float>& out) { return {m, n, k, {a.upload()}, {}, {out.upload()}}; }

    // An element of the product, and the sum of the magnitudes of its products.
    struct sum {
        double value, magnitude;
    };
    sum at(int row, int column) const {
        sum result{0, 0};
        for (int i = 0; i < k; ++i) {
            const double product = static_cast<double>(static_cast<float>(a.values[row * k + i])) *
                                   static_cast<float>(values[column * k + i]) * scales.values[column];
            result.value += product;
            result.magnitude += std::abs(product);
        }
        return result;
    }
};

constexpr double fp32_sums = 1e-6;

}  // namespace

TEST_CASE_TEMPLATE("e4m3 weights: any number of rows, with scale and bias", In, bf16, fp16) {
    using product = gemm_quantised<e4m3_weights<In, 128>, float,
                                   decltype(epilogue::compose(epilogue::scale_columns{}, epilogue::bias<float>{}))>;
    const int n = 200, k = 328;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int m : {0, 1, 9, 16, 17, 40}) {
            CAPTURE(m);
            random_problem<In> one(where, m, n, k);
            buffer<float> out(where, m * n, NAN);
            product::launch(where, one.with(n, out), one.parts.upload(),
                            epilogue::compose(epilogue::scale_columns{{one.scales.upload(), n}},
                                              epilogue::bias<float>{{one.bias.upload(), n}}));
            out.download();
            double worst = 0;
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < n; ++column) {
                    const auto expected = one.at(row, column);
                    const double bias = one.bias.values[column];
                    const double error = std::abs(out.values[row * n + column] - (expected.value + bias)) /
                                         (expected.magnitude + std::abs(bias));
                    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
                }
            }
            CHECK(worst <= fp32_sums);
        }
    }
}

TEST_CASE("e4m3 weights: GLU is applied after the scales") {
    using product = gemm_quantised<e4m3_weights<bf16, 128>, float, epilogue::scaled_glu<activation::relu>>;
    const int n = 128, k = 200;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int m : {5, 13, 20}) {
            CAPTURE(m);
            random_problem<bf16> one(where, m, 2 * n, k);
            buffer<float> out(where, m * n, NAN);
            const float* scales = one.scales.upload();
            product::launch(where, one.with(n, out), one.parts.upload(),
                            epilogue::scaled_glu<activation::relu>{{{scales, n}}, {{scales + n, n}}});
            out.download();
            double worst = 0;
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < n; ++column) {
                    const auto gate = one.at(row, column), up = one.at(row, n + column);
                    const double expected = gate.value > 0 ? gate.value * up.value : 0;
                    const double error =
                        std::abs(out.values[row * n + column] - expected) / (gate.magnitude * up.magnitude);
                    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
                }
            }
            CHECK(worst <= fp32_sums);
        }
    }
}

TEST_CASE("rejects NaN in e4m3 weights") {
    std::vector<e4m3> values(64 * 64, e4m3(1.0f));
    values[64 * 5 + 7] = e4m3::from_bits(0xff);
    CHECK(error_message_of([&] { pack_weights<e4m3_weights<bf16>>(values.data(), nullptr, 64, 64); }) ==
          "values: NaN in column 7; weights are finite");
}
