// `linear` compared with float64: all weight formats, ragged sizes, any stride, quantised activations within their
// error bound, empty problems, argument checks.
#include <imbrex/kernels/linear.hpp>
#include <imbrex/kernels/linear/quantise.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Random weights, and their dequantised values.
template <class Weights>
struct test_weights;

template <class T>
struct test_weights<unquantised_weight_rows<T>> {
    int n, k, stride, before;
    buffer<T> values;

    test_weights(world where, int n, int k, int gap = 0, int before = 0)
        : n(n),
          k(k),
          stride(k + gap),
          before(before),
          values(where, before + static_cast<std::size_t>(n) * stride + 1) {
        std::vector<T> some(static_cast<std::size_t>(n) * k);
        fill_random(some, 7);
        values.values = poisoned<T>(values.values.size());
        for (int i = 0; i < n * k; ++i) values.values[before + i / k * stride + i % k] = some[i];
    }
    unquantised_weight_rows<T> upload() { return make_weight_rows<T>(values.upload() + before, n, k, stride); }
    double value(int row, int column) const {
        return convert<float>(values.values[before + static_cast<std::size_t>(row) * stride + column]);
    }
};

template <activation_quantisation Activations, class Scale>
struct test_weights<int8_weight_rows<Activations, Scale>> {
    int n, k;
    buffer<std::int8_t> values;
    buffer<Scale> scales;

    test_weights(world where, int n, int k)
        : n(n), k(k), values(where, int8_bytes(n, k)), scales(where, group_scale_count(n, k)) {
        std::vector<float> some(static_cast<std::size_t>(n) * k);
        fill_random(some, 8);
        quantise_rows(int8_rows_output{values.values.data(), scales.values.data()}, some.data(), n, k);
    }
    int8_weight_rows<Activations, Scale> upload() { return {values.upload(), scales.upload(), n, k}; }
    double value(int row, int column) const {
        const std::size_t i = static_cast<std::size_t>(row) * k + column;
        return static_cast<double>(convert<float>(scales.values[i / 32])) * values.values[i];
    }
};

template <activation_quantisation Activations, class Scale>
struct test_weights<int4_weight_rows<Activations, Scale>> {
    int n, k;
    buffer<std::uint8_t> values;
    buffer<Scale> scales;

    test_weights(world where, int n, int k)
        : n(n), k(k), values(where, int4_bytes(n, k)), scales(where, group_scale_count(n, k)) {
        std::vector<float> some(static_cast<std::size_t>(n) * k);
        fill_random(some, 9);
        quantise_rows(int4_rows_output{values.values.data(), scales.values.data()}, some.data(), n, k);
    }
    int4_weight_rows<Activations, Scale> upload() { return {values.upload(), scales.upload(), n, k}; }
    double value(int row, int column) const {
        const std::size_t i = static_cast<std::size_t>(row) * k + column;
        const std::uint8_t both = values.values[i / 32 * 16 + i % 16];
        return static_cast<double>(convert<float>(scales.values[i / 32])) * ((i % 32 < 16 ? both & 15 : both >> 4) - 8);
    }
};

template <>
struct test_weights<e4m3_weight_rows> {
    int n, k;
    buffer<e4m3> values;
    buffer<float> scales;

    test_weights(world where, int n, int k)
        : n(n), k(k), values(where, static_cast<std::size_t>(n) * k), scales(where, static_cast<std::size_t>(n)) {
        std::vector<float> some(static_cast<std::size_t>(n) * k);
        fill_random(some, 10);
        quantise_rows(e4m3_rows_output{values.values.data(), scales.values.data()}, some.data(), n, k);
    }
    e4m3_weight_rows upload() { return {values.upload(), scales.upload(), n, k}; }
    double value(int row, int column) const {
        return static_cast<double>(scales.values[row]) *
               convert<float>(values.values[static_cast<std::size_t>(row) * k + column]);
    }
};

template <class In, class Weights, class Out, class... Layout>
void check_linear(int m, int n, int k, bool with_bias = true, int gap = 0, Layout... layout) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        const row_shape in{m, 1, k, gap, gap}, result{m, 1, n, gap, gap};
        buffer<In> x(where, in.elements());
        buffer<Out> out(where, result.elements());
        buffer<float> bias(where, static_cast<std::size_t>(n));
        x.values = random_rows<In>(in, 1, 1.0f);
        out.values = poisoned<Out>(result.elements());
        fill_random(bias.values, 2);
        test_weights<Weights> weights(where, n, k, layout...);
        linear<In, Weights, Out>::launch(where, {.x = in.view<const In>(x.upload()),
                                                 .weights = weights.upload(),
                                                 .bias = with_bias ? bias.upload() : nullptr,
                                                 .out = result.view(out.upload())});
        out.download();
        bool right = true;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                double sum = with_bias ? bias.values[column] : 0.0, sizes = std::fabs(sum), rounding = 0;
                for (int first = 0; first < k; first += 32) {
                    double largest = 0, all = 0;
                    for (int i = first; i < std::min(first + 32, k); ++i) {
                        const double one = convert<float>(x.values[in.index(row, i)]), w = weights.value(column, i);
                        sum += one * w;
                        sizes += std::fabs(one * w);
                        all += std::fabs(w);
                        largest = std::max(largest, std::fabs(one));
                    }
                    // Each element of a group moves by up to half of 1/127 of the largest magnitude.
                    rounding += all * largest / 254;
                }
                const double found = convert<float>(out.values[result.index(row, column)]);
                const double allowed = 2e-6 * sizes + tolerance<Out>() * std::fabs(sum) + 1e-7 +
                                       (Weights::activations == activation_quantisation::int8 ? 1.01 * rounding : 0.0);
                right = right && std::fabs(found - sum) <= allowed;
            }
        }
        CHECK(right);
        CHECK(gaps_untouched(result, out.values));
    }
}

template <class Weights>
void check_sizes(bool groups) {
    for (const int m : {1, 2, 3, 7}) {
        for (const int k : {32, 64, 96, 416}) check_linear<float, Weights, float>(m, 9, groups ? k : k + m);
    }
    check_linear<float, Weights, float>(1, 133, 1120);
    check_linear<float, Weights, float>(5, 5, 1120, false, 3);
    check_linear<float, Weights, float>(37, 6, 128);
}

}  // namespace

TEST_CASE("linear: float, bf16 and fp16 weights of any size") {
    for (const int m : {1, 2, 3, 5, 9}) {
        for (const int n : {1, 3, 4, 66}) {
            for (const int k : {1, 7, 31, 32, 100}) check_linear<float, unquantised_weight_rows<float>, float>(m, n, k);
            for (const int k : {1, 33, 64, 200}) check_linear<float, unquantised_weight_rows<bf16>, float>(m, n, k);
        }
    }
    check_sizes<unquantised_weight_rows<fp16>>(false);
    check_linear<float, unquantised_weight_rows<bf16>, float>(40, 70, 96);
    check_linear<float, unquantised_weight_rows<bf16>, float>(6, 3, 2300);
    check_linear<float, unquantised_weight_rows<float>, float>(1, 5, 9000);
}

TEST_CASE("linear: 16-bit x and out, independently") {
    check_linear<bf16, unquantised_weight_rows<bf16>, bf16>(3, 10, 264);
    check_linear<bf16, unquantised_weight_rows<bf16>, float>(1, 10, 264, false, 5);
    check_linear<fp16, unquantised_weight_rows<fp16>, fp16>(6, 11, 77);
    check_linear<bf16, int8_weight_rows<>, bf16>(2, 9, 64);
    check_linear<fp16, int4_weight_rows<activation_quantisation::int8>, bf16>(2, 9, 64);
}

TEST_CASE("linear: unaligned weight rows") {
    for (const int gap : {1, 3, 8}) {
        check_linear<float, unquantised_weight_rows<bf16>, float>(2, 9, 64, true, 1, gap, 1);
        check_linear<float, unquantised_weight_rows<float>, float>(1, 9, 70, true, 2, gap, 3);
        check_linear<float, unquantised_weight_rows<fp16>, float>(9, 5, 40, false, 0, gap, 5);
    }
}

TEST_CASE("linear: grouped int8 weights") {
    check_sizes<int8_weight_rows<>>(true);
    check_sizes<int8_weight_rows<activation_quantisation::none, float>>(true);
}

TEST_CASE("linear: grouped int4 weights") {
    check_sizes<int4_weight_rows<>>(true);
    check_linear<float, int4_weight_rows<activation_quantisation::none, fp16>, float>(3, 7, 96);
}

TEST_CASE("linear: int8 activations stay within their error bound") {
    check_sizes<int8_weight_rows<activation_quantisation::int8>>(true);
    check_sizes<int4_weight_rows<activation_quantisation::int8>>(true);
    check_linear<float, int4_weight_rows<activation_quantisation::int8>, float>(1, 7, 8224);
}

TEST_CASE("linear: int8 activations are exact for integers up to 127") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int k = 320, n = 6;
        buffer<float> x(where, k), out(where, n), exact(where, n);
        for (int i = 0; i < k; ++i) x.values[i] = static_cast<float>(i % 32 == 5 ? 127 : (i * 29) % 255 - 127);
        test_weights<int4_weight_rows<activation_quantisation::int8>> rounded(where, n, k);
        test_weights<int4_weight_rows<>> weights(where, n, k);
        linear<float, int4_weight_rows<activation_quantisation::int8>, float>::launch(
            where, {.x = as_rows<const float>(x.upload(), 1, k),
                    .weights = rounded.upload(),
                    .out = as_rows(out.upload(), 1, n)});
        linear<float, int4_weight_rows<>, float>::launch(where, {.x = as_rows<const float>(x.upload(), 1, k),
                                                                 .weights = weights.upload(),
                                                                 .out = as_rows(exact.upload(), 1, n)});
        out.download();
        exact.download();
        for (int i = 0; i < n; ++i) CHECK(out.values[i] == doctest::Approx(exact.values[i]).epsilon(1e-5));
    }
}

TEST_CASE("linear: non-finite values of x affect only their own row") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const int k = 96, n = 5;
        for (const float bad : {NAN, INFINITY}) {
            buffer<float> x(where, 2 * k, 0.5f), out(where, 2 * n);
            x.values[40] = bad;
            const auto check = [&](auto tag) {
                using weights_of = decltype(tag);
                test_weights<weights_of> weights(where, n, k);
                linear<float, weights_of, float>::launch(where, {.x = as_rows<const float>(x.upload(), 2, k),
                                                                 .weights = weights.upload(),
                                                                 .out = as_rows(out.upload(), 2, n)});
                out.download();
                for (int i = 0; i < n; ++i) {
                    CHECK(!std::isfinite(out.values[i]));
                    CHECK(std::isfinite(out.values[n + i]));
                }
            };
            check(unquantised_weight_rows<bf16>{});
            check(int8_weight_rows<activation_quantisation::int8>{});
        }
    }
}

TEST_CASE("linear: e4m3 weights with a scale per row") {
    check_sizes<e4m3_weight_rows>(false);
    // Every e4m3 value.
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> x(where, 256, 0.0f), scales(where, 1, 1.0f), out(where, 1);
        buffer<e4m3> values(where, 256);
        for (int i = 0; i < 256; ++i)
            values.values[i] = e4m3::from_bits(static_cast<std::uint8_t>((i & 127) == 127 ? 0 : i));
        for (const int i : {0, 1, 7, 8, 100, 126, 129, 137, 254}) {
            x.values.assign(256, 0.0f);
            x.values[i] = 1;
            linear<float, e4m3_weight_rows, float>::launch(where,
                                                           {.x = as_rows<const float>(x.upload(), 1, 256),
                                                            .weights = {values.upload(), scales.upload(), 1, 256},
                                                            .out = as_rows(out.upload(), 1, 1)});
            out.download();
            CHECK(out.values[0] == convert<float>(values.values[i]));
        }
    }
}

TEST_CASE("linear: k = 0 gives the bias, and an empty output does nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        linear<float, unquantised_weight_rows<float>, float>::launch(where, {});
        linear<float, int4_weight_rows<>, float>::launch(where, {});
        buffer<float> bias(where, 3), out(where, 6, 9.0f);
        bias.values = {1, 2, 3};
        linear<float, unquantised_weight_rows<float>, float>::launch(where,
                                                                     {.x = as_rows<const float>(nullptr, 2, 0),
                                                                      .weights = make_weight_rows<float>(nullptr, 3, 0),
                                                                      .bias = bias.upload(),
                                                                      .out = as_rows(out.upload(), 2, 3)});
        out.download();
        CHECK(out.values == std::vector<float>{1, 2, 3, 1, 2, 3});
    }
}

TEST_CASE("linear: rejects invalid arguments") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<float> x(where, 2 * 64), out(where, 2 * 4);
        test_weights<int8_weight_rows<>> weights(where, 4, 64);
        using product = linear<float, int8_weight_rows<>, float>;
        const product::problem good{.x = as_rows<const float>(x.upload(), 2, 64),
                                    .weights = weights.upload(),
                                    .out = as_rows(out.upload(), 2, 4)};
        const auto refused = [&](auto change) {
            product::problem bad = good;
            change(bad);
            return error_message_of([&] { product::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.x.pointer = nullptr; }) == "x.pointer: null; 2 x 1 x 64 elements are needed");
        CHECK(refused([](auto& p) { p.weights.values = nullptr; }) == "weights.values: null; 4 x 64 values are needed");
        CHECK(refused([](auto& p) { p.weights.scales = nullptr; }) ==
              "weights.scales: null; the scales of 4 rows are needed");
        CHECK(refused([](auto& p) { p.weights.columns = p.x.extents.given[2] = 60; }) ==
              "weights.columns: 60; must be a multiple of the group size, 32");
        CHECK(refused([](auto& p) { p.weights.rows = -1; }) == "weights.rows: -1; must be from 0 to 2147418112");
        CHECK(refused([](auto& p) { p.x.extents.given[2] = 32; }) ==
              "x.extents[2]: 32; must equal weights.columns, 64");
        CHECK(refused([](auto& p) { p.out.extents.given[2] = 5; }) == "out.extents[2]: 5; must equal weights.rows, 4");
        CHECK(refused([](auto& p) { p.out.extents.given[0] = 1; }) == "out.extents[0]: 1; must equal x.extents[0], 2");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 2; }) ==
              "out.strides[0]: 2; tokens of results lie at least the 4 elements of a row apart");
        CHECK(refused([](auto& p) { ++p.weights.values; }).find("; grouped weights must be aligned to 16 bytes") !=
              std::string::npos);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("linear: a program without device code rejects world::device") {
    std::vector<float> x(32), w(32), out(1);
    CHECK(error_message_of([&] {
              linear<float, unquantised_weight_rows<float>, float>::launch(
                  world::device, {.x = as_rows<const float>(x.data(), 1, 32),
                                  .weights = make_weight_rows<float>(w.data(), 1, 32),
                                  .out = as_rows(out.data(), 1, 1)});
          }) == "world: device; this program was not compiled by nvcc and has only the host world");
}

namespace {

template <class Weights>
void check_schedules() {
    using product = linear<float, Weights, float>;
    using kernel = typename product::template kernel<2, 4, 512>;
    std::vector<float> x(3 * 544), out(3 * 11);
    fill_random(x, 1);
    test_weights<Weights> weights(world::host, 11, 544);
    const auto args = product::template arguments_of<kernel>(
        {.x = as_rows<const float>(x.data(), 3, 544), .weights = weights.upload(), .out = as_rows(out.data(), 3, 11)},
        8);
    check_without_synchronisation<kernel>(kernel::grid_of(args), args);
}

}  // namespace

TEST_CASE("linear: no hazard in any schedule; there is no synchronisation to mutate") {
    check_schedules<unquantised_weight_rows<bf16>>();
    check_schedules<int4_weight_rows<activation_quantisation::int8>>();
}
#endif
