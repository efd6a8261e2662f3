// Random quantised weights, their dequantised values, and the comparison of a product with them.
#pragma once

#include <imbrex/core/element_types.hpp>
#include <imbrex/kernels/gemm/epilogue.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/problem.hpp>

#include "worlds.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace imbrex_test {

using namespace imbrex;

// Random weights and scales as loaded from a file, and their dequantised values.
template <class Weights>
struct random_weights {
    using format = typename Weights::format;
    using scale = typename Weights::scale;
    int rows, k, groups;
    std::vector<format> values;
    std::vector<scale> scales;

    random_weights(int rows, int k, unsigned seed)
        : rows(rows),
          k(k),
          groups(Weights::group > 0 ? k / Weights::group : 1),
          values(static_cast<std::size_t>(rows) * k / values_in<format>),
          scales(static_cast<std::size_t>(rows) * groups) {
        std::mt19937 generator(seed);
        for (format& value : values) {
            const auto byte = static_cast<std::uint8_t>(generator());
            if constexpr (std::is_same_v<format, std::int8_t>) {
                value = static_cast<std::int8_t>(byte);
            } else if constexpr (std::is_same_v<format, e4m3>) {
                value = e4m3::from_bits((byte & 0x7f) == 0x7f ? 0 : byte);  // no NaN
            } else {
                value = format::from_bits(byte);
            }
        }
        std::uniform_real_distribution<float> number(0.001f, 0.02f);
        for (scale& one : scales) {
            if constexpr (std::is_same_v<scale, ue8m0>) {
                one = ue8m0::from_bits(static_cast<std::uint8_t>(118 + generator() % 6));
            } else {
                one = convert<scale>(number(generator));
            }
        }
    }
    // Without the scale, for weights that the epilogue scales.
    double at(int row, int column) const {
        const std::size_t place = static_cast<std::size_t>(row) * k + column;
        double value = 0;
        if constexpr (values_in<format> == 1) {
            value = static_cast<float>(values[place]);
        } else {
            const auto pair = static_cast<float_pair>(values[place / 2]);
            value = place % 2 == 0 ? pair.low : pair.high;
        }
        if constexpr (Weights::group == 0) return value;
        return value * static_cast<double>(
                           static_cast<float>(scales[static_cast<std::size_t>(row) * groups + column * groups / k]));
    }
};

// The data of a launch, with `times` rows of weights per column of D.
template <class Weights, class Kernel, class Out>
struct launch_of {
    using In = typename Weights::element;
    random_weights<Weights> weights;
    int m, n, k;
    buffer<In> a;
    buffer<Out> out;
    buffer<typename Weights::weight_tile> parts;

    launch_of(world where, int m, int n, int k, int times = 1)
        : weights(n * times, k, 5),
          m(m),
          n(n),
          k(k),
          a(where, static_cast<std::size_t>(m) * k),
          out(where, static_cast<std::size_t>(m) * n, convert<Out>(NAN)),
          parts(where, packed_tile_count<Weights>(n * times, k)) {
        fill_random(a.values, 1);
        parts.values = pack_weights<Weights>(weights.values.data(), weights.scales.data(), n * times, k);
    }
    template <class Epilogue>
    typename Kernel::arguments arguments(const Epilogue& epilogue) {
        const gemm_problem<In, Out> p{m, n, k, {a.upload()}, {}, {out.upload()}};
        return Kernel::describe(p, Weights::describe(parts.upload(), weights.rows, k), epilogue);
    }
};

// The largest error of an element, relative to the sum of the magnitudes of its products; about 1e-7 for fp32 sums. The
// epilogue multiplies by `times(column)`.
template <class In, class Weights, class Out, class Times>
double worst_error(const std::vector<In>& a, const random_weights<Weights>& weights, const std::vector<Out>& out, int m,
                   Times times) {
    const int n = weights.rows, k = weights.k;
    double worst = 0;
    for (int row = 0; row < m; ++row) {
        for (int column = 0; column < n; ++column) {
            double expected = 0, magnitude = 0;
            for (int i = 0; i < k; ++i) {
                const double product = static_cast<float>(a[row * k + i]) * weights.at(column, i);
                expected += product;
                magnitude += std::abs(product);
            }
            const double result = convert<float>(out[row * n + column]);
            const double error = std::abs(result - expected * times(column)) / (magnitude * times(column));
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

// The epilogue with which a product is tested: weights that have a scale per row need one that applies it.
template <class Weights>
using tested_epilogue = std::conditional_t<Weights::group == 0, epilogue::scale_columns, epilogue::identity>;

// Compares a kernel whose epilogue is tested_epilogue<Weights> with float64 in every world.
template <class Weights, class Kernel, class Out>
void check_quantised_product(grid_dim grid, int schedules, int m, int n, int k, double tolerance) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(n);
        CAPTURE(k);
        launch_of<Weights, Kernel, Out> one(where, m, n, k);
        buffer<float> row_scales(where, n);
        fill_random(row_scales.values, 3, 0.01f, 0.02f);
        constexpr bool scale_rows = Weights::group == 0;
        tested_epilogue<Weights> last{};
        if constexpr (scale_rows) last.factors = {row_scales.upload(), n};
        run<Kernel>(where, grid, one.arguments(last), schedules);
        one.out.download();
        const double worst = worst_error(one.a.values, one.weights, one.out.values, m, [&](int column) {
            return scale_rows ? static_cast<double>(row_scales.values[column]) : 1.0;
        });
        CHECK(worst <= tolerance);
    }
}

}  // namespace imbrex_test
