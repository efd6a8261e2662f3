// LayerNorm against loops in double: rows of all lengths, of a matrix and of heads, with and without a residual, weight
// and bias, in place and out of place, at any alignment, and with means far from zero. Gaps between rows stay untouched.
#include <imbrex/kernels/layer_norm.hpp>

#include "kernels/norm_trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T, class Weight = T>
class norm_trial {
  public:
    norm_trial(world where, const norm_case& given, std::uint32_t seed)
        : rows(where, given, seed),
          weight(where, static_cast<std::size_t>(given.rows.columns)),
          bias(where, weight.values.size()) {
        fill_random(weight.values, seed + 2, 0.5f, 2);
        fill_random(bias.values, seed + 3);
    }

    layer_norm_problem<T, Weight> upload() {
        auto p = rows.template upload<layer_norm_problem<T, Weight>>();
        if (rows.given.weight) p.weight = weight.upload();
        if (rows.given.bias) p.bias = bias.upload();
        return p;
    }

    void check() {
        rows.check([&](const std::vector<double>& x) { return reference(x); });
    }

    norm_rows_trial<T> rows;
    buffer<Weight> weight, bias;

  private:
    std::vector<expected_element> reference(const std::vector<double>& x) const {
        const double count = static_cast<double>(x.size());
        double mean = 0, squares = 0, most = 0;
        for (const double value : x) mean += value / count;
        for (const double value : x) squares += (value - mean) * (value - mean);
        for (const double value : x) most = std::max(most, std::fabs(value));
        const double rstd = 1 / std::sqrt(squares / count + rows.given.epsilon);
        std::vector<expected_element> expected;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double factor = rstd * (rows.given.weight ? convert<float>(weight.values[i]) : 1.0f);
            const double shift = rows.given.bias ? convert<float>(bias.values[i]) : 0.0f;
            const double scaled = (x[i] - mean) * factor;
            // The mean is a float; the scaled value and the bias may cancel out.
            const double error = 4e-7 * most * std::fabs(factor) + 4e-6 * (std::fabs(scaled) + std::fabs(shift));
            expected.push_back({scaled + shift, error});
        }
        return expected;
    }
};

template <class T, class Weight = T>
void check_norm(const norm_case& given, std::uint32_t seed = 1) {
    check_norm_trial<layer_norm<T, Weight>, norm_trial<T, Weight>>(given, seed);
}

}  // namespace

TEST_CASE("LayerNorm of rows of every length, with and without a residual") {
    for (const int columns : {8, 56, 64, 72, 128, 200, 256, 264, 512, 520, 1000, 1024, 1032, 2048, 2056, 4096, 8192}) {
        check_norm<bf16>({.rows = {3, 1, columns}});
        check_norm<bf16>({.rows = {3, 1, columns}, .residual = true});
    }
    check_norm<bf16>({.rows = {2, 1, 8200}, .residual = true});
    check_norm<bf16>({.rows = {1, 1, 16384}, .residual = true});
    check_norm<bf16>({.rows = {1, 1, 16392}, .residual = true});
    check_norm<float>({.rows = {1, 1, 20000}});
}

TEST_CASE("LayerNorm of rows not aligned to 16 bytes") {
    for (const int columns : {1, 2, 7, 100, 255, 257, 1001, 2305}) {
        check_norm<bf16>({.rows = {3, 1, columns}, .residual = true});
        check_norm<fp16>({.rows = {2, 1, columns, 3, 1}});
    }
    check_norm<bf16>({.rows = {5, 1, 128, 1}, .residual = true});
    check_norm<bf16>({.rows = {5, 1, 512, 0, 1}, .residual = true});
    check_norm<float>({.rows = {5, 1, 512, 2, 0}});
}

TEST_CASE("LayerNorm of one row, many rows, strided rows, and in place") {
    for (const int tokens : {1, 2, 31, 33, 67}) {
        check_norm<bf16>({.rows = {tokens, 1, 64}, .residual = true});
        check_norm<fp16>({.rows = {tokens, 1, 128, 8, 8}, .in_place = true});
        check_norm<float>({.rows = {tokens, 1, 256, 24, 4}, .residual = true, .in_place = true});
        check_norm<bf16>({.rows = {tokens, 1, 1024, 40}, .residual = true});
        check_norm<bf16>({.rows = {tokens, 1, 1536, 8, 8}, .residual = true, .in_place = true});
        check_norm<bf16>({.rows = {tokens, 1, 99, 5}, .residual = true, .in_place = true});
    }
    check_norm<float>({.rows = {7, 1, 4096}, .residual = true});
    check_norm<fp16>({.rows = {7, 1, 4096}, .residual = true});
}

TEST_CASE("LayerNorm of each head of each token (QK norm)") {
    for (const int heads : {1, 2, 5}) {
        for (const int head_dim : {64, 80, 128, 256}) {
            check_norm<bf16>({.rows = {7, heads, head_dim}});
            check_norm<bf16>({.rows = {7, heads, head_dim, 8, 16}, .in_place = true});
            check_norm<fp16>({.rows = {3, heads, head_dim, 1}, .residual = true});
        }
    }
}

TEST_CASE("LayerNorm without weight or bias, with another type of both, and a large epsilon") {
    for (const int columns : {64, 99, 768, 4096}) {
        check_norm<bf16>({.rows = {5, 1, columns}, .residual = true, .weight = false, .bias = false});
        check_norm<float>({.rows = {5, 1, columns}, .bias = false});
        check_norm<fp16, bf16>({.rows = {5, 1, columns}, .weight = false});
    }
    check_norm<bf16, float>({.rows = {5, 1, 768}, .residual = true});
    check_norm<bf16, float>({.rows = {5, 2, 99}, .epsilon = 2});
    check_norm<fp16>({.rows = {5, 1, 2500}, .epsilon = 0});
}

TEST_CASE("LayerNorm with a weight or bias not aligned to 16 bytes") {
    for (const world where : worlds()) {
        for (const bool of_weight : {true, false}) {
            norm_trial<bf16> trial(where, {.rows = {3, 1, 512}}, 7);
            const std::vector<bf16>& values = (of_weight ? trial.weight : trial.bias).values;
            buffer<bf16> moved(where, values.size() + 1);
            std::copy(values.begin(), values.end(), moved.values.begin() + 1);
            auto p = trial.upload();
            (of_weight ? p.weight : p.bias) = moved.upload() + 1;
            layer_norm<bf16>::launch(where, p);
            trial.check();
        }
    }
}

TEST_CASE("LayerNorm of rows with a mean far from zero") {
    for (const int columns : {8, 64, 100, 200, 512, 1000, 1001, 4096, 20000}) {
        check_norm<float>({.rows = {3, 1, columns}, .mean = 1000, .spread = 1});
        check_norm<float>({.rows = {3, 1, columns}, .mean = -30000, .spread = 1});
        check_norm<fp16>({.rows = {3, 1, columns}, .residual = true, .mean = -1000, .spread = 8});
        check_norm<bf16>({.rows = {3, 1, columns}, .residual = true, .mean = 1000, .spread = 50});
    }
}

TEST_CASE("LayerNorm of rows whose parts have different means") {
    for (const world where : worlds()) {
        for (const int columns : {64, 520, 1000, 4096, 4100, 20000}) {
            CAPTURE(columns);
            norm_trial<float> trial(where, {.rows = {3, 1, columns}}, 5);
            for (int row = 0; row < 3; ++row) {
                // A step after a quarter, a single outlier at the beginning, and a slope.
                for (int i = 0; i < columns; ++i) {
                    float& element = trial.rows.x.values[trial.rows.given.rows.index(row, i)];
                    element += row == 0   ? (i < columns / 4 ? 1000.0f : -1000.0f)
                               : row == 1 ? (i == 0 ? 10000.0f : 0.0f)
                                          : 0.1f * static_cast<float>(i);
                }
            }
            layer_norm<float>::launch(where, trial.upload());
            trial.check();
        }
    }
}

TEST_CASE("LayerNorm of a row of equal elements is exactly the bias") {
    for (const world where : worlds()) {
        for (const int columns : {1, 8, 100, 200, 512, 1000, 4096, 5120, 7000, 20000}) {
            for (const float value : {0.0f, 1000.7f, -3e-5f, 1e30f}) {
                CAPTURE(columns);
                CAPTURE(value);
                norm_trial<float> trial(where, {.rows = {2, 1, columns}}, 3);
                std::fill(trial.rows.x.values.begin(), trial.rows.x.values.end(), value);
                layer_norm<float>::launch(where, trial.upload());
                trial.rows.out.download();
                const std::vector<float>& found = trial.rows.out.values;
                CHECK(std::equal(trial.bias.values.begin(), trial.bias.values.end(), found.begin()));
                CHECK(std::equal(trial.bias.values.begin(), trial.bias.values.end(), found.begin() + columns));
            }
        }
    }
}

TEST_CASE("LayerNorm of an empty problem does nothing") {
    for (const world where : worlds()) {
        layer_norm<bf16>::launch(where, {});
        layer_norm<bf16>::launch(where,
                                 {.x = as_rows<const bf16>(nullptr, 0, 64), .out = as_rows<bf16>(nullptr, 0, 64)});
        layer_norm<bf16>::launch(where, {.x = as_rows<const bf16>(nullptr, 9, 0), .out = as_rows<bf16>(nullptr, 9, 0)});
    }
}

TEST_CASE("LayerNorm rejects invalid problems") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        norm_trial<bf16> there(where, {.rows = {4, 2, 64}, .residual = true}, 1);
        const layer_norm_problem<bf16> good = there.upload();
        check_norm_errors([&](auto change) {
            layer_norm_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { layer_norm<bf16>::launch(where, bad); });
        });
    }
}

#if !defined(__CUDACC__)
namespace {

template <class Kernel>
void check_schedules(int columns, bool synchronises) {
    norm_trial<bf16> there(world::host, {.rows = {2, 1, columns}, .residual = true}, 1);
    const auto args = layer_norm<bf16>::arguments_of(there.upload());
    const grid_dim grid = Kernel::grid_of(args);
    if (synchronises) {
        check_synchronisation<Kernel>("LayerNorm of " + std::to_string(columns) + " columns", grid, args);
    } else {
        check_without_synchronisation<Kernel>(grid, args);
    }
}

}  // namespace

TEST_CASE("LayerNorm has no hazard in any schedule, and every mutation is detected") {
    using norm = layer_norm<bf16>;
    check_schedules<norm::kernel<128, 1>>(128, false);
    check_schedules<norm::kernel<512, 2>>(520, true);
    check_schedules<norm::kernel<512, 4>>(1032, true);  // the last warp has no columns
    check_schedules<norm::two_pass_kernel<row_alignment::unaligned>>(300, true);
}

TEST_CASE("the check of a LayerNorm launch finds no hazard") {
    norm_trial<bf16> there(world::host, {.rows = {2, 1, 520}, .residual = true}, 1);
    CHECK(text_of(layer_norm<bf16>::check(there.upload(), {.schedules = schedules_to_run(20)})) == "");
}
#endif
