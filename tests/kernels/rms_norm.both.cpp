// RMSNorm against loops in double: rows of all lengths, of a matrix and of heads, with and without a residual, in place
// and out of place, at any alignment. Gaps between rows stay untouched.
#include <imbrex/kernels/rms_norm.hpp>

#include "kernels/elementwise.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

struct norm_case {
    row_shape rows;
    bool residual = false;
    bool in_place = false;
    float epsilon = 1e-5f;
};

template <class T, class Weight = T>
class norm_trial {
  public:
    norm_trial(world where, const norm_case& given, std::uint32_t seed)
        : given_(given),
          x(where, given.rows.elements()),
          residual(where, given.rows.elements()),
          out(where, given.rows.elements()),
          weight(where, static_cast<std::size_t>(given.rows.columns)) {
        x.values = random_rows<T>(given.rows, seed);
        residual.values = random_rows<T>(given.rows, seed + 1);
        out.values = poisoned<T>(given.rows.elements());
        fill_random(weight.values, seed + 2, 0.5f, 2);
        x_before_ = x.values;
        residual_before_ = residual.values;
    }

    rms_norm_problem<T, Weight> upload() {
        rms_norm_problem<T, Weight> p{.x = given_.rows.view<const T>(x.upload()),
                                      .weight = weight.upload(),
                                      .out = given_.rows.view(given_.in_place ? x.upload() : out.upload()),
                                      .epsilon = given_.epsilon};
        if (given_.residual) p.residual = given_.rows.view(residual.upload());
        return p;
    }

    void check() {
        x.download();
        residual.download();
        out.download();
        const row_shape& rows = given_.rows;
        const std::vector<T>& results = given_.in_place ? x.values : out.values;
        bool sums_right = true, results_right = true;
        for (int row = 0; row < rows.rows(); ++row) {
            std::vector<double> values(rows.columns);
            double squares = 0;
            for (int i = 0; i < rows.columns; ++i) {
                const std::size_t at = rows.index(row, i);
                float value = convert<float>(x_before_[at]);
                if (given_.residual) {
                    const T sum = convert<T>(value + convert<float>(residual_before_[at]));
                    sums_right = sums_right && std::memcmp(&sum, &residual.values[at], sizeof sum) == 0;
                    value = convert<float>(sum);
                }
                values[i] = value;
                squares += values[i] * values[i];
            }
            const double inverse = 1 / std::sqrt(squares / rows.columns + given_.epsilon);
            for (int i = 0; i < rows.columns; ++i) {
                const double wanted = values[i] * inverse * convert<float>(weight.values[i]);
                results_right = results_right && is_near(results[rows.index(row, i)], wanted);
            }
        }
        CHECK(sums_right);
        CHECK(results_right);
        CHECK(gaps_untouched(rows, results));
        if (given_.residual) CHECK(gaps_untouched(rows, residual.values));
    }

  private:
    norm_case given_;
    std::vector<T> x_before_, residual_before_;

  public:
    buffer<T> x, residual, out;
    buffer<Weight> weight;
};

template <class T, class Weight = T>
void check_norm(const norm_case& given, std::uint32_t seed = 1) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.rows.tokens);
        CAPTURE(given.rows.heads);
        CAPTURE(given.rows.columns);
        CAPTURE(given.rows.gap);
        CAPTURE(given.residual);
        norm_trial<T, Weight> trial(where, given, seed);
        rms_norm<T, Weight>::launch(where, trial.upload());
        trial.check();
    }
}

}  // namespace

TEST_CASE("RMSNorm of rows of every length, with and without a residual") {
    for (const int columns : {8, 56, 64, 72, 128, 200, 256, 264, 512, 520, 1000, 1024, 1032, 2048, 2056, 4096, 8192}) {
        check_norm<bf16>({.rows = {3, 1, columns}});
        check_norm<bf16>({.rows = {3, 1, columns}, .residual = true});
    }
    check_norm<bf16>({.rows = {2, 1, 8200}, .residual = true});
    check_norm<bf16>({.rows = {1, 1, 16384}, .residual = true});
    check_norm<bf16>({.rows = {1, 1, 16392}, .residual = true});
    check_norm<bf16>({.rows = {1, 1, 20000}});
}

TEST_CASE("RMSNorm of rows not aligned to 16 bytes") {
    for (const int columns : {1, 7, 100, 255, 257, 1001, 2305}) {
        check_norm<bf16>({.rows = {3, 1, columns}, .residual = true});
        check_norm<fp16>({.rows = {2, 1, columns, 3, 1}});
    }
    check_norm<bf16>({.rows = {5, 1, 128, 1}, .residual = true});
    check_norm<bf16>({.rows = {5, 1, 512, 0, 1}, .residual = true});
    check_norm<float>({.rows = {5, 1, 512, 2, 0}});
}

TEST_CASE("RMSNorm of one row, many rows, strided rows, and in place") {
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

TEST_CASE("RMSNorm of each head of each token (QK norm)") {
    for (const int heads : {1, 2, 5, 8}) {
        for (const int depth : {64, 80, 128, 256}) {
            check_norm<bf16>({.rows = {7, heads, depth}});
            check_norm<bf16>({.rows = {7, heads, depth, 8, 16}, .in_place = true});
            check_norm<fp16>({.rows = {3, heads, depth, 1}, .residual = true});
        }
    }
    check_norm<bf16>({.rows = {1, 9, 128, 16}});
}

TEST_CASE("RMSNorm with another weight type and a large epsilon") {
    check_norm<bf16, float>({.rows = {5, 1, 768}, .residual = true});
    check_norm<bf16, float>({.rows = {5, 2, 99}, .epsilon = 2});
    check_norm<fp16>({.rows = {5, 1, 2500}, .epsilon = 0});
}

TEST_CASE("RMSNorm of an empty problem does nothing") {
    for (const world where : worlds()) {
        rms_norm<bf16>::launch(where, {});
        rms_norm<bf16>::launch(where, {.x = as_rows<const bf16>(nullptr, 0, 64), .out = as_rows<bf16>(nullptr, 0, 64)});
        rms_norm<bf16>::launch(where, {.x = as_rows<const bf16>(nullptr, 9, 0), .out = as_rows<bf16>(nullptr, 9, 0)});
    }
}

TEST_CASE("RMSNorm rejects invalid problems") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        norm_trial<bf16> there(where, {.rows = {4, 2, 64}, .residual = true}, 1);
        const rms_norm_problem<bf16> good = there.upload();
        const auto refused = [&](auto change) {
            rms_norm_problem<bf16> bad = good;
            change(bad);
            return error_message_of([&] { rms_norm<bf16>::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.x.pointer = nullptr; }) == "x.pointer: null; 4 x 2 x 64 elements are needed");
        CHECK(refused([](auto& p) { p.x.extents.given[0] = -1; }) ==
              "x.extents[0]: -1; the number of tokens is from 0 to 2147418112");
        CHECK(refused([](auto& p) { p.x.extents.given[0] = p.x.extents.given[1] = 65536; }) ==
              "x.extents[0], x.extents[1]: 65536, 65536; at most 2147418112 rows are allowed");
        CHECK(refused([](auto& p) { --p.out.extents.given[2]; }) ==
              "out.extents[2]: 63; x has 64 columns, and it must have as many");
        CHECK(refused([](auto& p) { ++p.residual.extents.given[1]; }) ==
              "residual.extents[1]: 3; x has 2 heads, and it must have as many");
        CHECK(refused([](auto& p) { p.residual.pointer = nullptr; }) ==
              "residual.pointer: null; 4 x 2 x 64 elements are needed");
        CHECK(refused([](auto& p) { p.out.strides.given[0] = 63; }) ==
              "out.strides[0]: 63; tokens of results lie at least the 64 elements of a row apart");
        CHECK(refused([](auto& p) { p.residual.strides.given[1] = 0; }) ==
              "residual.strides[1]: 0; heads of results lie at least the 64 elements of a row apart");
        CHECK(refused([](auto& p) { p.weight = nullptr; }) == "weight: null; 64 elements are needed");
        CHECK(refused([](auto& p) { p.epsilon = -1; }) == "epsilon: -1; must be finite and not negative");
        CHECK(refused([](auto& p) { p.epsilon = NAN; }) == "epsilon: nan; must be finite and not negative");
        CHECK(refused([](auto& p) {
                  p.out = p.residual;
              }).ends_with("; must differ from residual.pointer, which is written too"));
    }
}

#if !defined(__CUDACC__)
namespace {

template <class Kernel>
void check_schedules(int columns, bool synchronises) {
    norm_trial<bf16> there(world::host, {.rows = {2, 1, columns}, .residual = true}, 1);
    const auto args = rms_norm<bf16>::arguments_of(there.upload());
    const grid_dim grid = Kernel::grid_of(args);
    if (synchronises) {
        check_synchronisation<Kernel>("RMSNorm of " + std::to_string(columns) + " columns", grid, args);
    } else {
        check_without_synchronisation<Kernel>(grid, args);
    }
}

}  // namespace

TEST_CASE("RMSNorm has no hazard in any schedule, and every mutation is detected") {
    using norm = rms_norm<bf16>;
    check_schedules<norm::kernel<128, 1>>(128, false);
    check_schedules<norm::kernel<512, 2>>(520, true);
    check_schedules<norm::two_pass_kernel<row_alignment::unaligned>>(300, true);
}
#endif
