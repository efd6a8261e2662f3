// RMSNorm against loops in double: rows of all lengths, of a matrix and of heads, with and without a residual, in place
// and out of place, at any alignment. Gaps between rows stay untouched.
#include <imbrex/kernels/rms_norm.hpp>

#include "kernels/norm_trial.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

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
        : rows(where, given, seed), weight(where, static_cast<std::size_t>(given.rows.columns)) {
        fill_random(weight.values, seed + 2, 0.5f, 2);
    }

    rms_norm_problem<T, Weight> upload() {
        auto p = rows.template upload<rms_norm_problem<T, Weight>>();
        p.weight = weight.upload();
        return p;
    }

    void check() {
        rows.check([&](const std::vector<double>& x) {
            double squares = 0;
            for (const double value : x) squares += value * value;
            const double rstd = 1 / std::sqrt(squares / static_cast<double>(x.size()) + rows.given.epsilon);
            std::vector<expected_element> expected;
            for (std::size_t i = 0; i < x.size(); ++i) {
                expected.push_back({x[i] * rstd * convert<float>(weight.values[i])});
            }
            return expected;
        });
    }

    norm_rows_trial<T> rows;
    buffer<Weight> weight;
};

template <class T, class Weight = T>
void check_norm(const norm_case& given, std::uint32_t seed = 1) {
    check_norm_trial<rms_norm<T, Weight>, norm_trial<T, Weight>>(given, seed);
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
        check_norm_errors(refused);
        CHECK(refused([](auto& p) { p.weight = nullptr; }) == "weight: null; 64 elements are needed");
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
