// The fused dequantisation GEMM compared with float64 over the dequantised values: every kind of format, all tile
// heights, ragged sizes, cluster split-K, GLU and other epilogues; argument checks. No hazard in any schedule, and every
// mutation of the synchronisation is detected.
#include <imbrex/kernels/gemm/dequantising.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>

#include <kernels/gemm/random_weights.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr gemm_dequantising_shape alone{}, by_two{.cluster_size = 2};

template <class Weights, class Out, int Rows, gemm_dequantising_shape Shape = alone>
void check_product(int m, int n, int k, double tolerance) {
    using kernel = gemm_dequantising<Weights, Out, tested_epilogue<Weights>, Rows, Shape>;
    check_quantised_product<Weights, kernel, Out>({kernel::blocks_of(m, n)}, 2, m, n, k, tolerance);
}

template <int Rows, gemm_dequantising_shape Shape>
void check_glu() {
    using weights = mxfp4_weights<bf16, 128>;
    using relu = epilogue::glu<activation::relu>;
    using chain = decltype(epilogue::compose(relu{}, epilogue::scale_rows{}));
    using kernel = gemm_dequantising<weights, float, chain, Rows, Shape>;
    const int m = 70, n = 128, k = 160;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        launch_of<weights, kernel, float> one(where, m, n, k, 2);
        buffer<float> factors(where, m);
        fill_random(factors.values, 4);
        run<kernel>(where, {kernel::blocks_of(m, n)},
                    one.arguments(epilogue::compose(relu{}, epilogue::scale_rows{{factors.upload(), m}})), 2);
        one.out.download();
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                double gate = 0, up = 0;
                for (int i = 0; i < k; ++i) {
                    const double x = convert<float>(one.a.values[row * k + i]);
                    gate += x * one.weights.at(column, i);
                    up += x * one.weights.at(n + column, i);
                }
                const double expected = std::max(gate, 0.0) * up * factors.values[row];
                const double error = std::abs(expected - one.out.values[row * n + column]);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= 1e-5);
    }
}

// Errors relative to the sum of the magnitudes. A scale and a scaled weight are each rounded once, by 2^-9 at most.
constexpr double exact = 1e-6, rounded = 0x1.01p-8, rounded_to_bf16 = 6e-3;

}  // namespace

TEST_CASE("fused dequantisation GEMM: int4 and MXFP4, 64 rows") {
    check_product<int4_weights<bf16, 128, bf16, 128>, float, 64>(33, 200, 384, rounded);
    check_product<int4_weights<bf16, 64, fp16, 256>, bf16, 64, by_two>(64, 136, 576, rounded_to_bf16);
    check_product<int4_weights<fp16, 32, fp16, 128>, float, 64, by_two>(50, 72, 288, rounded);
    check_product<mxfp4_weights<bf16, 512>, float, 64>(64, 136, 544, exact);
    check_product<mxfp4_weights<bf16, 128>, float, 64, by_two>(40, 264, 416, exact);
}

TEST_CASE("fused dequantisation GEMM: 128 and 256 rows, several tiles of rows") {
    check_product<int4_weights<bf16, 128, bf16, 512>, float, 128, by_two>(100, 136, 640, rounded);
    check_product<mxfp4_weights<bf16, 256>, float, 128>(200, 72, 160, exact);
    check_product<mxfp4_weights<bf16, 128>, bf16, 256, by_two>(200, 136, 288, rounded_to_bf16);
    check_product<int4_weights<bf16, 32, float, 128>, float, 256>(300, 72, 160, rounded);
}

TEST_CASE("fused dequantisation GEMM: weights of 8 bits") {
    check_product<int8_weights<bf16, 128>, float, 64>(35, 136, 200, exact);
    check_product<e4m3_weights<bf16, 256>, float, 128, by_two>(65, 72, 392, exact);
    check_product<grouped_weights<bf16, std::int8_t, 64, bf16, 128>, float, 64>(64, 72, 192, rounded);
}

TEST_CASE("fused dequantisation GEMM: GLU and an epilogue that depends on rows") {
    check_glu<64, alone>();
    check_glu<128, by_two>();
}

TEST_CASE("fused dequantisation GEMM: tile and cluster size follow from the sizes") {
    const auto chosen = [](int m, int tile_columns, int steps) {
        const gemm_dequantising_tile tile = choose_dequantising_tile(m, tile_columns, steps, 132);
        return std::pair{tile.rows, tile.cluster_size};
    };
    CHECK(chosen(64, 64, 64) == std::pair{64, 2});
    CHECK(chosen(64, 128, 64) == std::pair{64, 1});
    CHECK(chosen(64, 32, 1) == std::pair{64, 1});
    CHECK(chosen(128, 64, 64) == std::pair{128, 2});
    CHECK(chosen(128, 32, 64) == std::pair{64, 2});
    CHECK(chosen(256, 64, 64) == std::pair{128, 1});
    CHECK(chosen(512, 64, 64) == std::pair{256, 1});
}

TEST_CASE("fused dequantisation GEMM: rejects invalid arguments") {
    using weights = mxfp4_weights<bf16, 128>;
    using kernel = gemm_dequantising<weights, float, epilogue::identity, 64, by_two>;
    std::vector<bf16> a(64 * 256);
    std::vector<float> out(64 * 64);
    const gemm_problem<bf16, float> good{64, 64, 256, {a.data()}, {}, {out.data()}};
    const auto refusal = [&](auto change) {
        gemm_problem<bf16, float> p = good;
        change(p);
        return error_message_of([&] { kernel::describe(p, {}, {}); });
    };
    CHECK(refusal([](auto& p) { p.m = 0; }) == "m: 0; there must be a row");
    CHECK(refusal([](auto& p) { p.n = 0; }) == "n: 0; there must be a column");
    CHECK(refusal([](auto& p) { p.batches = 2; }) == "batches: 2; this kernel takes one product");
    CHECK(refusal([](auto& p) { p.k = 128; }) == "k: 128; each of 2 blocks needs a step of 128");
    CHECK(refusal([](auto& p) { p.out.pointer = nullptr; }) == "out.pointer: null; a matrix of 64 x 64 is needed");
}

#if !defined(__CUDACC__)
namespace {

template <class Weights, class Epilogue, gemm_dequantising_shape Shape>
void check_silent_and_mutate(const char* name) {
    using kernel = gemm_dequantising<Weights, bf16, Epilogue, 64, Shape>;
    const int m = 70, n = 136 - 8 * epilogue::is_glu<Epilogue>, times = epilogue::is_glu<Epilogue> ? 2 : 1;
    launch_of<Weights, kernel, bf16> one(world::host, m, n, 896, times);
    check_synchronisation<kernel>(name, {kernel::blocks_of(m, n)}, one.arguments(Epilogue{}));
}

}  // namespace

TEST_CASE("fused dequantisation GEMM: no hazard in any schedule, and every mutation is detected") {
    using int4 = int4_weights<bf16, 64, bf16, 128>;
    constexpr gemm_dequantising_shape two_stages{.stages = 2}, two_blocks{.cluster_size = 2, .stages = 2};
    check_silent_and_mutate<int4, epilogue::identity, two_stages>("int4");
    check_silent_and_mutate<mxfp4_weights<bf16, 128>, epilogue::identity, two_blocks>("MXFP4, cluster split-K");
    check_silent_and_mutate<mxfp4_weights<bf16, 128>, epilogue::swiglu, two_stages>("MXFP4, GLU");
}
#endif
