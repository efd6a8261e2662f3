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

// A random row of scales for 64 columns, random super-scales, and their values in float64.
struct group_values {
    std::vector<double> scales, minimums;  // of the groups of 64 columns
};
inline fp16 random_factor(std::mt19937& random) {
    return convert<fp16>(std::uniform_real_distribution<float>(1e-5f, 2e-4f)(random));
}
inline double exact_value(fp16 value) {
    return convert<float>(value);
}

inline void set_random(k_scales_with_minimums::super_row& in, std::mt19937& random) {
    in = {random_factor(random), random_factor(random)};
}
inline void set_random(k_scales::super_row& in, std::mt19937& random) {
    in = {random_factor(random)};
}
inline void set_random(half_scales_with_minimums::super_row& in, std::mt19937& random) {
    in = {{random_factor(random), random_factor(random)}};
}
inline group_values set_random(k_scales_with_minimums::row& row, const k_scales_with_minimums::super_row& in,
                               std::mt19937& random) {
    const auto byte = [&] { return static_cast<std::uint8_t>(random()); };
    const std::uint8_t scales[2]{byte(), byte()}, minimums[2]{byte(), byte()};
    row = k_scales_with_minimums::row_of(scales[0], scales[1], minimums[0], minimums[1]);
    return {{exact_value(in.scale) * scales[0], exact_value(in.scale) * scales[1]},
            {exact_value(in.minimum) * minimums[0], exact_value(in.minimum) * minimums[1]}};
}
inline group_values set_random(k_scales::row& row, const k_scales::super_row& in, std::mt19937& random) {
    const auto byte = [&] { return static_cast<std::int8_t>(random()); };
    const std::int8_t of[4]{byte(), byte(), byte(), byte()};
    row = k_scales::row_of(of[0], of[1], of[2], of[3]);
    group_values result{{}, {0, 0, 0, 0}};
    for (const std::int8_t one : of) result.scales.push_back(exact_value(in.scale) * one);
    return result;
}
inline group_values set_random(q2_k_scales::row& row, const q2_k_scales::super_row& in, std::mt19937& random) {
    row.bits = random();
    group_values result;
    for (int group = 0; group < 4; ++group) {
        result.scales.push_back(exact_value(in.scale) * (row.bits >> (8 * group) & 15));
        result.minimums.push_back(exact_value(in.minimum) * (row.bits >> (8 * group + 4) & 15));
    }
    return result;
}
inline group_values set_random(half_scales_with_minimums::row& row, const half_scales_with_minimums::super_row& in,
                               std::mt19937& random) {
    row = {{random_factor(random), random_factor(random)}};
    return {{exact_value(row.scales[0]), exact_value(row.scales[1])},
            {exact_value(in.minimums[0]), exact_value(in.minimums[1])}};
}

template <class Weights>
struct random_blocks {
    using format = typename Weights::format;
    static constexpr int group = Weights::group;
    int rows, k;
    std::vector<format> values;
    std::vector<typename Weights::scale> scales;
    std::vector<typename Weights::super_scale> supers;
    group_values of_groups;  // [rows, k / group]

    random_blocks(int rows, int k, unsigned seed)
        : rows(rows),
          k(k),
          values(static_cast<std::size_t>(rows) * k),
          scales(values.size() / packed_columns),
          supers(values.size() / Weights::super_block) {
        std::mt19937 random(seed);
        for (format& value : values) value = format::from_bits(static_cast<std::uint8_t>(random()));
        for (auto& one : supers) set_random(one, random);
        for (std::size_t i = 0; i < scales.size(); ++i) {
            const group_values some = set_random(scales[i], supers[i * packed_columns / Weights::super_block], random);
            of_groups.scales.insert(of_groups.scales.end(), some.scales.begin(), some.scales.end());
            of_groups.minimums.insert(of_groups.minimums.end(), some.minimums.begin(), some.minimums.end());
        }
    }

    double at(int row, int column) const {
        const std::size_t place = static_cast<std::size_t>(row) * k + column;
        return static_cast<double>(static_cast<float>(values[place])) * of_groups.scales[place / group] -
               of_groups.minimums[place / group];
    }

    std::vector<typename Weights::weight_tile> packed() const {
        std::vector<typename Weights::weight_tile> tiles(packed_tile_count<Weights>(rows, k));
        pack_weights<Weights>(tiles.data(), values.data(), scales.data(), supers.data(), rows, k);
        return tiles;
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
