// The launcher for quantised weights: few and many rows, epilogues that depend on the row, argument checks.
#include <imbrex/kernels/gemm_quantised.hpp>

#include <kernels/gemm/random_weights.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using weights = int4_weights<bf16, 64, float, 128>;
using narrow = int4_weights<bf16, 32, float, 128>;

}  // namespace

TEST_CASE("int4 weights: any number of rows, with row scales") {
    const int n = 200, k = 320;
    std::vector<int4x2> values(n * k / 2);
    std::mt19937 random(3);
    for (int4x2& pair : values) pair = int4x2::from_bits(static_cast<std::uint8_t>(random()));
    std::vector<float> scales(n * k / 64);
    fill_random(scales, 4, 0.01f, 0.1f);
    const auto packed = pack_weights<weights>(values.data(), scales.data(), n, k);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<weights::weight_tile> parts(where, packed.size());
        parts.values = packed;
        for (const int m : {0, 1, 9, 16, 17, 150}) {
            CAPTURE(m);
            buffer<bf16> a(where, m * k);
            buffer<float> out(where, m * n, NAN), row_scales(where, m);
            fill_random(a.values, 1);
            fill_random(row_scales.values, 2);
            using product = gemm_quantised<weights, float, epilogue::scale_rows>;
            product::launch(where, {m, n, k, {a.upload()}, {}, {out.upload()}}, parts.upload(),
                            epilogue::scale_rows{{row_scales.upload(), m}});
            out.download();
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

TEST_CASE("int4 weights: cluster split-K, rows not a multiple of 16 bytes, and GLU") {
    const auto check = [](auto product_of, int m, int n, int k, int stride, bool gated) {
        const int rows = gated ? 2 * n : n;
        std::vector<int4x2> values(rows * k / 2);
        std::mt19937 random(3);
        for (int4x2& pair : values) pair = int4x2::from_bits(static_cast<std::uint8_t>(random()));
        std::vector<float> scales(rows * k / 32);
        fill_random(scales, 4, 0.01f, 0.02f);
        const auto packed = pack_weights<narrow>(values.data(), scales.data(), rows, k);
        const auto weight = [&](int row, int i) {
            const auto pair = static_cast<float_pair>(values[(row * k + i) / 2]);
            return static_cast<double>(i % 2 == 0 ? pair.low : pair.high) * scales[(row * k + i) / 32];
        };
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(m);
            buffer<narrow::weight_tile> parts(where, packed.size());
            parts.values = packed;
            buffer<bf16> a(where, m * stride);
            buffer<float> out(where, m * n, NAN);
            fill_random(a.values, 1);
            product_of(where, gemm_problem<bf16, float>{m, n, k, {a.upload(), stride}, {}, {out.upload()}},
                       parts.upload());
            out.download();
            double worst = 0;
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < n; ++column) {
                    double sum = 0, up = 0;
                    for (int i = 0; i < k; ++i) {
                        const double x = static_cast<float>(a.values[row * stride + i]);
                        sum += x * weight(column, i);
                        if (gated) up += x * weight(n + column, i);
                    }
                    const double expected = gated ? (sum > 0 ? sum : 0) * up : sum;
                    const double error = std::abs(expected - out.values[row * n + column]);
                    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
                }
            }
            CHECK(worst <= 1e-4);
        }
    };
    const auto plain = [](world where, const auto& p, const auto* parts) {
        gemm_quantised<narrow, float>::launch(where, p, parts);
    };
    const auto with_gate = [](world where, const auto& p, const auto* parts) {
        gemm_quantised<narrow, float, epilogue::glu<activation::relu>>::launch(where, p, parts);
    };
    check(plain, 3, 64, 4096, 4096, false);
    check(plain, 12, 64, 2048 + 32, 2112, false);
    check(with_gate, 5, 128, 288, 288, true);
    check(with_gate, 13, 64, 96, 96, true);
    check(with_gate, 20, 64, 96, 96, true);
}

TEST_CASE_TEMPLATE("large M with a workspace, with and without GLU", Epilogue, epilogue::identity,
                   epilogue::glu<activation::relu>) {
    using product = gemm_quantised<narrow, float, Epilogue>;
    constexpr bool gate = epilogue::is_glu<Epilogue>;
    const int m = fused_dequantisation_max_m + 2, n = 64, k = 160, rows = gate ? 2 * n : n;
    const random_weights<narrow> given(rows, k, 3);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<narrow::weight_tile> parts(where, packed_tile_count<narrow>(rows, k));
        parts.values = pack_weights<narrow>(given.values.data(), given.scales.data(), rows, k);
        buffer<bf16> a(where, m * k), room(where, rows * k, convert<bf16>(NAN));
        buffer<float> out(where, m * n, NAN);
        fill_random(a.values, 1);
        const gemm_problem<bf16, float> p{m, n, k, {a.upload()}, {}, {out.upload()}};
        REQUIRE(product::workspace_bytes(p) == room.values.size() * sizeof(bf16));
        product::launch(where, p, parts.upload(), gemm_workspace{room.upload(), product::workspace_bytes(p)});
        out.download();
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                const auto sum_of = [&](int of) {
                    double sum = 0;
                    for (int i = 0; i < k; ++i) {
                        const double weight = convert<float>(convert<bf16>(static_cast<float>(given.at(of, i))));
                        sum += convert<float>(a.values[row * k + i]) * weight;
                    }
                    return sum;
                };
                const double expected = gate ? std::max(sum_of(column), 0.0) * sum_of(n + column) : sum_of(column);
                const double error = std::abs(expected - out.values[row * n + column]);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= 1e-5);
    }
}

TEST_CASE_TEMPLATE("33 to 1024 rows with a workspace argument: any number, without workspace memory", Weights, narrow,
                   mxfp4_weights<bf16, 128>) {
    using product = gemm_quantised<Weights, float>;
    const int n = 72, k = 160, most = 512;
    const random_weights<Weights> given(n, k, 3);
    const auto packed = pack_weights<Weights>(given.values.data(), given.scales.data(), n, k);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<typename Weights::weight_tile> parts(where, packed.size());
        parts.values = packed;
        buffer<bf16> a(where, most * k);
        fill_random(a.values, 1);
        for (const int m : {33, 64, 100, 128, 200, 512}) {
            CAPTURE(m);
            buffer<float> out(where, m * n, NAN);
            const gemm_problem<bf16, float> p{m, n, k, {a.upload()}, {}, {out.upload()}};
            REQUIRE(product::fuses(m));
            REQUIRE(product::workspace_bytes(p) == 0);
            product::launch(where, p, parts.upload(), gemm_workspace{});
            out.download();
            // A scale and a scaled weight are each rounded by 2^-9 at most; MXFP4 is exact.
            const double worst = worst_error(a.values, given, out.values, m, [](int) { return 1.0; });
            CHECK(worst <= (std::is_same_v<Weights, narrow> ? 0x1.01p-8 : 1e-6));
        }
    }
}

TEST_CASE(
    "rejects a workspace that is too small; "
    "small M needs none") {
    using product = gemm_quantised<narrow, float>;
    for (const world where : worlds()) {
        const int many = fused_dequantisation_max_m + 1;
        buffer<narrow::weight_tile> parts(where, 1);
        buffer<bf16> a(where, many * 64);
        buffer<float> out(where, many * 64, NAN);
        const narrow::weight_tile* packed = parts.upload();
        gemm_problem<bf16, float> p{many, 64, 64, {a.upload()}, {}, {out.upload()}};
        const auto refusal = [&](const gemm_workspace& workspace) {
            return error_message_of([&] { product::launch(where, p, packed, workspace); });
        };
        CHECK(refusal({}) == "workspace.pointer: null; 8192 bytes are needed");
        CHECK(refusal({out.upload(), 8191}) == "workspace.bytes: 8191; 8192 are needed");
        for (const int m : {32, many}) {
            p.m = m;
            CHECK(error_message_of([&] { product::launch_fused(where, p, packed); }) ==
                  "m: " + std::to_string(m) + "; the fused dequantisation GEMM takes 33 to 1024 rows");
        }
        p.m = 127;
        CHECK(product::workspace_bytes(p) == 0);
        product::launch(where, p, packed, gemm_workspace{});
        out.download();
        CHECK(out.values[127 * 64 - 1] == 0);
        CHECK(std::isnan(out.values[127 * 64]));
    }
}

TEST_CASE("int8 weights: rows not a multiple of 16 bytes") {
    using bytes = int8_weights<bf16, 128>;
    const int m = 5, n = 72, k = 131, stride = 136;
    std::vector<std::int8_t> values(n * k);
    std::mt19937 random(3);
    for (std::int8_t& value : values) value = static_cast<std::int8_t>(random());
    const auto packed = pack_weights<bytes>(values.data(), nullptr, n, k);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<bytes::weight_tile> parts(where, packed.size());
        parts.values = packed;
        buffer<bf16> a(where, m * stride);
        buffer<float> out(where, m * n, NAN);
        fill_random(a.values, 1);
        gemm_quantised<bytes, float>::launch(where, {m, n, k, {a.upload(), stride}, {}, {out.upload()}},
                                             parts.upload());
        out.download();
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                double sum = 0;
                for (int i = 0; i < k; ++i) {
                    sum += static_cast<float>(a.values[row * stride + i]) * values[column * k + i];
                }
                const double error = std::abs(sum - out.values[row * n + column]);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= 1e-2);
    }
}

TEST_CASE("gemm_quantised rejects invalid arguments") {
    using product = gemm_quantised<narrow, float>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<bf16> a(where, 64);
        buffer<float> out(where, 64);
        const gemm_problem<bf16, float> p{1, 64, 64, {a.upload()}, {}, {out.upload()}};
        CHECK(error_message_of([&] { product::launch(where, p, nullptr); }) ==
              "tiles: null; packed weights of 64 x 64 are needed");
        auto bad = p;
        bad.m = -1;
        CHECK(error_message_of([&] { product::launch(where, bad, nullptr); }) ==
              "m: -1; the number of rows must not be negative");
        bad = p;
        bad.batches = 2;
        CHECK(error_message_of([&] { product::launch(where, bad, nullptr); }) ==
              "batches: 2; must be 1 with quantised weights");
        using gated_product = gemm_quantised<narrow, float, epilogue::glu<activation::relu>>;
        bad = p;
        bad.n = 40;
        CHECK(error_message_of([&] { gated_product::launch(where, bad, nullptr); }) ==
              "n: 40; gate and up must be a multiple of 64 columns each");
    }
}

#if !defined(__CUDACC__)
namespace {

// Every scope stores to the same place.
struct racing_epilogue {
    float* last;

    template <class Scope, class Tile>
    IMBREX_KERNEL void operator()(const Scope& self, Tile&, gemm_coord at) const {
        put(self, last, static_cast<float>(at.row));
    }
};

}  // namespace

TEST_CASE("check of gemm_quantised and dequantise_weights") {
    const int n = 192, k = 160;
    const random_weights<narrow> given(n, k, 3);
    const auto packed = pack_weights<narrow>(given.values.data(), given.scales.data(), n, k);
    for (const int m : {3, 40, 1030}) {
        CAPTURE(m);
        std::vector<bf16> a(m * k), room(n * k);
        std::vector<float> out(m * n);
        fill_random(a, 1);
        const gemm_problem<bf16, float> p{m, n, k, {a.data()}, {}, {out.data()}};
        using product = gemm_quantised<narrow, float>;
        const gemm_workspace workspace{room.data(), room.size() * sizeof(bf16)};
        const host::check_options options{.schedules = 4, .uninitialised = {{room.data(), workspace.bytes}}};
        CHECK(text_of(product::check(p, options, packed.data(), workspace)) == "");
    }
    // A product of the previous product.
    const random_weights<narrow> square(n, n, 3);
    const auto square_packed = pack_weights<narrow>(square.values.data(), square.scales.data(), n, n);
    for (const int m : {3, 20, 40, 1030}) {
        std::vector<bf16> x(m * n), y(m * n), room(n * n);
        using product = gemm_quantised<narrow, bf16>;
        const gemm_workspace workspace{room.data(), room.size() * sizeof(bf16)};
        const auto chain = [&] {
            product::launch(world::host_checked, {m, n, n, {x.data()}, {}, {y.data()}}, square_packed.data(),
                            workspace);
            product::launch(world::host_checked, {m, n, n, {y.data()}, {}, {x.data()}}, square_packed.data(),
                            workspace);
        };
        check_stream("quantised GEMM, m = " + std::to_string(m), chain, 2);
    }
    std::vector<bf16> a(3 * k), dequantised(n * k);
    std::vector<float> out(3 * n);
    gemm_problem<bf16, float> p{3, n, k, {a.data()}, {}, {out.data()}};
    float last = 0;
    using wrong = gemm_quantised<narrow, float, racing_epilogue>;
    CHECK(text_of(wrong::check(p, {.schedules = 4}, packed.data(), racing_epilogue{&last})).find("hazard: race") == 0);
    p.m = -1;
    CHECK(error_message_of([&] { gemm_quantised<narrow, float>::check(p, {}, packed.data()); }) ==
          "m: -1; the number of rows must not be negative");

    using dequantise = dequantise_weights<narrow>;
    CHECK(text_of(dequantise::check(n, k, packed.data(), dequantised.data(), {.schedules = 4})) == "");
    CHECK(error_message_of([&] { dequantise::check(n, k, packed.data(), nullptr); }) ==
          "out: null; there must be memory for 192 x 160 weights");
}
#endif
