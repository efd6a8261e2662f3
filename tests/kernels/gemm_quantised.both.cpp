// The launcher for quantised weights: few and many rows, epilogues that know their rows, refusals.
#include <imbrex/kernels/gemm_quantised.hpp>

#include "worlds.hpp"

#include <cmath>
#include <random>
#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using weights = int4_weights<bf16, 64, float, 128>;

}  // namespace

TEST_CASE("products with int4 weights, any number of rows, rows scaled") {
    const int n = 200, k = 320;
    std::vector<int4x2> values(n * k / 2);
    std::mt19937 random(3);
    for (int4x2& pair : values) pair = int4x2::from_bits(static_cast<std::uint8_t>(random()));
    std::vector<float> scales(n * k / 64);
    fill_random(scales, 4, 0.01f, 0.1f);
    const auto packed = pack_weights<weights>(values.data(), scales.data(), n, k);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<weights::part> parts(where, packed.size());
        parts.values = packed;
        for (const int m : {0, 1, 16, 17, 150}) {
            CAPTURE(m);
            buffer<bf16> a(where, m * k);
            buffer<float> out(where, m * n, NAN), row_scales(where, m);
            fill_random(a.values, 1);
            fill_random(row_scales.values, 2);
            using product = gemm_quantised<weights, float, scaled_rows>;
            product::launch(where, {m, n, k, {a.send()}, {}, {out.send()}}, parts.send(),
                            scaled_rows{{row_scales.send(), m}});
            out.fetch();
            double worst = 0;
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < n; ++column) {
                    double sum = 0;
                    for (int i = 0; i < k; ++i) {
                        const auto pair = static_cast<float_pair>(values[(column * k + i) / 2]);
                        const double weight = (i % 2 == 0 ? pair.low : pair.high) * scales[(column * k + i) / 64];
                        sum += static_cast<float>(a.values[row * k + i]) * weight;
                    }
                    const double error = std::abs(sum * row_scales.values[row] - out.values[row * n + column]);
                    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
                }
            }
            CHECK(worst <= 1e-4);
        }
    }
}

TEST_CASE("products with quantised weights that cannot be done are refused") {
    using product = gemm_quantised<weights, float>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<bf16> a(where, 64);
        buffer<float> out(where, 64);
        const gemm_problem<bf16, float> p{1, 64, 64, {a.send()}, {}, {out.send()}};
        CHECK(refusal_of([&] { product::launch(where, p, nullptr); }) ==
              "parts: null; packed weights of 64 x 64 are needed");
        auto bad = p;
        bad.m = -1;
        CHECK(refusal_of([&] { product::launch(where, bad, nullptr); }) ==
              "m: -1; the number of rows must not be negative");
        bad = p;
        bad.batches = 2;
        CHECK(refusal_of([&] { product::launch(where, bad, nullptr); }) ==
              "batches: 2; quantised weights are multiplied with one matrix");
    }
}
