// Random weights in blocks with two levels of scales (kernels/gemm/block_weights.hpp), and their values in float64.
#pragma once

#include <imbrex/kernels/gemm/block_weights.hpp>
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

template <class Weights>
struct random_blocks {
    using format = typename Weights::format;
    using scales_type = typename Weights::scales;
    static constexpr int group = Weights::group, super = Weights::block_k;
    int rows, k;
    std::vector<format> values;
    std::vector<int> scale_integers, minimum_integers;  // [rows, k / group]
    std::vector<typename Weights::scale> scales;
    std::vector<typename Weights::super_scale> supers;

    random_blocks(int rows, int k, unsigned seed) : rows(rows), k(k), values(static_cast<std::size_t>(rows) * k) {
        std::mt19937 random(seed);
        for (format& value : values) value = format::from_bits(static_cast<std::uint8_t>(random()));
        std::uniform_real_distribution<float> factor(1e-5f, 2e-4f);
        for (int i = 0; i < rows * k / group; ++i) {
            scale_integers.push_back(static_cast<int>(random() % 256) - (scales_type::has_minimum ? 0 : 128));
            minimum_integers.push_back(static_cast<int>(random() % 256));
        }
        for (int i = 0; i < rows * k / super; ++i) {
            if constexpr (scales_type::has_minimum) {
                supers.push_back({convert<fp16>(factor(random)), convert<fp16>(factor(random))});
            } else {
                supers.push_back({convert<fp16>(factor(random))});
            }
        }
        for (int i = 0; i < rows * k / packed_columns; ++i) scales.push_back(scales_of(i));
    }

    double at(int row, int column) const {
        const std::size_t place = static_cast<std::size_t>(row) * k + column;
        const auto& in = supers[place / super];
        const double weight = static_cast<float>(values[place]) * static_cast<double>(convert<float>(in.scale)) *
                              scale_integers[place / group];
        if constexpr (scales_type::has_minimum)
            return weight - static_cast<double>(convert<float>(in.minimum)) * minimum_integers[place / group];
        return weight;
    }

    std::vector<typename Weights::weight_tile> packed() const {
        std::vector<typename Weights::weight_tile> tiles(packed_tile_count<Weights>(rows, k));
        pack_weights<Weights>(tiles.data(), values.data(), scales.data(), supers.data(), rows, k);
        return tiles;
    }

  private:
    typename Weights::scale scales_of(int number) const {
        const int* const of = scale_integers.data() + number * Weights::subtile_groups;
        if constexpr (scales_type::has_minimum) {
            const int* const minimums = minimum_integers.data() + number * Weights::subtile_groups;
            const auto byte = [](int value) { return static_cast<std::uint8_t>(value); };
            return scales_type::row_of(byte(of[0]), byte(of[1]), byte(minimums[0]), byte(minimums[1]));
        } else {
            const auto byte = [](int value) { return static_cast<std::int8_t>(value); };
            return scales_type::row_of(byte(of[0]), byte(of[1]), byte(of[2]), byte(of[3]));
        }
    }
};

// The data of a launch, with `times` rows of weights per column of D.
template <class Weights, class Out>
struct block_launch {
    using In = typename Weights::element;
    random_blocks<Weights> weights;
    int m, n, k;
    buffer<In> a;
    buffer<Out> out;
    buffer<typename Weights::weight_tile> tiles;

    block_launch(world where, int m, int n, int k, int times = 1)
        : weights(n * times, k, 5),
          m(m),
          n(n),
          k(k),
          a(where, static_cast<std::size_t>(m) * k),
          out(where, static_cast<std::size_t>(m) * n, convert<Out>(NAN)),
          tiles(where, packed_tile_count<Weights>(n * times, k)) {
        fill_random(a.values, 1);
        tiles.values = weights.packed();
    }
    gemm_problem<In, Out> problem() { return {m, n, k, {a.upload()}, {}, {out.upload()}}; }

    // A product in float64, and the sum of the magnitudes of its parts.
    struct sum {
        double value = 0, magnitude = 0;
    };
    sum product(int row, int of) const {
        sum result;
        for (int i = 0; i < k; ++i) {
            const double x = static_cast<float>(a.values[static_cast<std::size_t>(row) * k + i]);
            result.value += x * weights.at(of, i);
            result.magnitude += std::abs(x * weights.at(of, i));
        }
        return result;
    }
    // The largest error of an element of D relative to the magnitude of its sum.
    double worst_error() const {
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                const sum expected = product(row, column);
                const double result = convert<float>(out.values[static_cast<std::size_t>(row) * n + column]);
                const double error = std::abs(result - expected.value) / expected.magnitude;
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        return worst;
    }
};

}  // namespace imbrex_test
