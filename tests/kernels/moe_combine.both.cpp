// moe_combine beside plain loops in float64: aligned and unaligned rows, a residual that is the output, invalid arguments.
#include <imbrex/kernels/moe_combine.hpp>

#include "kernels/moe_trial.hpp"
#include "synchronisation.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T>
void check(const moe_sizes& sizes, int n, int y_gap, bool adds, double tolerance) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(n);
        const expected_routing expected = random_routing(sizes, 3, true);
        routing_trial routing(where, sizes);
        routing.set(expected);
        buffer<T> y(where, std::size_t(sizes.max_rows()) * (n + y_gap), convert<T>(NAN)),
            out(where, std::size_t(sizes.tokens) * n);
        fill_random(out.values, 4);
        const std::vector<T> before = out.values;
        for (const int row : expected.rows) {
            std::vector<T> values(n);
            fill_random(values, 5 + row);
            std::copy(values.begin(), values.end(), y.values.begin() + std::ptrdiff_t(row) * (n + y_gap));
        }
        const auto rows = as_rows(out.upload(), sizes.tokens, n);
        moe_combine<T>::launch(where, {.y = {y.upload(), n + y_gap},
                                       .routing = routing.routing,
                                       .residual = adds ? row_view<const T>(rows) : row_view<const T>{},
                                       .out = rows});
        out.download();
        double worst = 0;
        for (int token = 0; token < sizes.tokens; ++token) {
            for (int column = 0; column < n; ++column) {
                double right = adds ? static_cast<float>(before[std::size_t(token) * n + column]) : 0;
                for (int i = token * sizes.top_k; i < (token + 1) * sizes.top_k; ++i) {
                    right += expected.weights[i] *
                             static_cast<float>(y.values[std::size_t(expected.rows[i]) * (n + y_gap) + column]);
                }
                const double error = std::abs(static_cast<float>(out.values[std::size_t(token) * n + column]) - right);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= tolerance);
    }
}

}  // namespace

TEST_CASE("MoE combine") {
    check<bf16>({.tokens = 37, .experts = 5, .top_k = 3, .tile_rows = 16}, 264, 0, false, 0.02);
    check<fp16>({.tokens = 9, .experts = 4, .top_k = 4, .tile_rows = 8}, 31, 0, true, 0.003);
    check<float>({.tokens = 1, .experts = 32, .top_k = 1, .tile_rows = 4}, 520, 8, true, 1e-6);
    check<float>({.tokens = 20, .experts = 32, .top_k = 16, .tile_rows = 4}, 5, 2, false, 1e-5);
    check<bf16>({.tokens = 3, .experts = 8, .top_k = 6, .tile_rows = 4}, 264, 0, true, 0.02);
    check<bf16>({.tokens = 513, .experts = 5, .top_k = 2, .tile_rows = 16}, 24, 0, true, 0.02);
}

TEST_CASE("MoE combine: no tokens, and error messages") {
    const moe_sizes none{.tokens = 0, .experts = 4, .top_k = 2};
    moe_combine<bf16>::launch(world::host, {.routing = {none}, .out = as_rows<bf16>(nullptr, 0, 8)});

    routing_trial routing(world::host, {.tokens = 2, .experts = 4, .top_k = 2});
    std::vector<float> y(std::size_t(routing.sizes.max_rows()) * 8), out(16);
    const auto error_of = [&](float* from, int tokens, int residual_columns) {
        return error_message_of([&] {
            moe_combine<float>::launch(world::host,
                                       {.y = {from},
                                        .routing = routing.routing,
                                        .residual = as_rows<const float>(out.data(), tokens, residual_columns),
                                        .out = as_rows(out.data(), tokens, 8)});
        });
    };
    CHECK(error_of(y.data(), 1, 8) == "out: 1 rows; routing.sizes.tokens is 2");
    CHECK(error_of(y.data(), 2, 7) == "residual.extents[2]: 7; out has 8 columns, and it must have as many");
    CHECK(error_of(nullptr, 2, 8) == "y.pointer: null; a matrix of 512 x 8 is needed");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE combine: no hazard in any schedule") {
    const moe_sizes sizes{.tokens = 7, .experts = 3, .top_k = 2, .tile_rows = 4};
    routing_trial routing(world::host, sizes);
    routing.set(random_routing(sizes, 1, false));
    std::vector<float> y(std::size_t(sizes.max_rows()) * 300, 1.0f), out(7 * 300);
    const moe_combine_problem<float> problem{
        .y = {y.data()}, .routing = routing.routing, .out = as_rows(out.data(), 7, 300)};
    CHECK(text_of(moe_combine<float>::check(problem, {.schedules = schedules_to_run(100)})) == "");
}
#endif
