// The grouped GEMM over experts beside plain loops in float64: gathered and sorted rows, even, uneven and empty experts,
// biases and gated epilogues by expert, outputs that TMA cannot store, strides, invalid arguments. No hazard in any
// schedule, and every mutation of its synchronisation is detected.
#include <imbrex/kernels/moe_gemm.hpp>

#include "kernels/moe_gemm_trial.hpp"
#include "synchronisation.hpp"

#include <functional>
#include <memory>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In, class Out, moe_rows Rows, class Epilogue = epilogue::identity>
void check(
    const moe_gemm_case& one, double tolerance,
    const std::function<Epilogue(world)>& epilogue = [](world) { return Epilogue{}; },
    const expected_value& expected = [](double x, double, int, int) { return x; }) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(one.sizes.tokens);
        CAPTURE(one.n);
        CAPTURE(one.k);
        moe_gemm_trial<plain_experts<In>, Out, Rows, epilogue::is_glu<Epilogue>> trial(where, one, 1);
        moe_gemm<In, Out, Rows, Epilogue>::launch(where, trial.upload(), epilogue(where));
        CHECK(trial.worst(expected) <= tolerance);
    }
}

struct alignas(16) aligned_chunk {
    bf16 values[8];
};

constexpr moe_rows gathered = moe_rows::gathered, sorted = moe_rows::sorted;

}  // namespace

TEST_CASE("MoE GEMM: gathered rows") {
    check<bf16, bf16, gathered>({{.tokens = 150, .experts = 3, .top_k = 2}, 264, 136}, 0.01);
    check<bf16, float, gathered>({{.tokens = 40, .experts = 5, .top_k = 1}, 40, 8, true}, 1e-5);
    check<fp16, fp16, gathered>({{.tokens = 1, .experts = 8, .top_k = 4}, 304, 72, false, 8, 16, 8}, 0.002);
}

TEST_CASE("MoE GEMM: sorted rows") {
    check<bf16, bf16, sorted>({{.tokens = 140, .experts = 4, .top_k = 2}, 136, 200, true}, 0.01);
    check<fp16, float, sorted>({{.tokens = 3, .experts = 2, .top_k = 2}, 520, 64, false, 8, 8, 4}, 1e-5);
}

TEST_CASE("MoE GEMM: tiles of 64 rows") {
    check<bf16, bf16, gathered>({{.tokens = 90, .experts = 3, .top_k = 2, .tile_rows = 64}, 136, 200, true}, 0.01);
    check<bf16, float, sorted>({{.tokens = 90, .experts = 2, .top_k = 1, .tile_rows = 64}, 264, 72}, 1e-5);
}

TEST_CASE("MoE GEMM: stores from registers if TMA cannot store D") {
    check<bf16, bf16, gathered>({{.tokens = 20, .experts = 3, .top_k = 2}, 133, 72}, 0.01);
    check<bf16, float, sorted>({{.tokens = 20, .experts = 3, .top_k = 2}, 5, 72, true, 0, 0, 2}, 1e-5);
}

TEST_CASE("MoE GEMM: the bias and the gated epilogue of each expert") {
    const moe_gemm_case one{{.tokens = 70, .experts = 3, .top_k = 2}, 136, 72, true};
    clamped_swiglu_case clamped(3, 136);
    check<bf16, bf16, gathered, clamped_swiglu_case::type>(one, 0.02, clamped.epilogue(), clamped.expected());

    std::vector<bf16> bias(3 * 136);
    fill_random(bias, 9, -4, 4);
    std::vector<std::unique_ptr<buffer<bf16>>> alive;
    using biased = epilogue::bias<bf16>;
    check<bf16, bf16, sorted, biased>(
        one, 0.01,
        [&](world where) {
            alive.push_back(std::make_unique<buffer<bf16>>(where, bias.size()));
            alive.back()->values = bias;
            return biased{{alive.back()->upload(), 136, 136}};
        },
        [&](double x, double, int expert, int column) { return x + number(bias[expert * 136 + column]); });
}

TEST_CASE("MoE GEMM: no tokens") {
    const std::vector<aligned_chunk> weights(2 * 8);
    moe_gemm<bf16, bf16, gathered>::launch(
        world::host, {.n = 8, .k = 8, .routing = {{.experts = 2, .top_k = 1}}, .b = {&weights[0].values[0]}});
}

TEST_CASE("MoE GEMM: error messages") {
    moe_gemm_trial<plain_experts<bf16>, bf16, gathered, false> trial(
        world::host, {{.tokens = 4, .experts = 2, .top_k = 1}, 16, 16}, 1);
    const auto error_of = [&](const auto& change) {
        auto problem = trial.upload();
        change(problem);
        return error_message_of([&] { moe_gemm<bf16, bf16, gathered>::launch(world::host, problem); });
    };
    CHECK(error_of([](auto& p) { p.k = 0; }) == "k: 0; must be positive");
    CHECK(error_of([](auto& p) { p.n = -1; }) == "n: -1; the number of columns must not be negative");
    CHECK(error_of([](auto& p) { p.a.stride = 20; }) == "a.stride: 20; must be a multiple of 8 elements, 16 bytes");
    CHECK(error_of([](auto& p) { p.b.batch_stride = 257; }) ==
          "b.batch_stride: 257; must be a multiple of 8 elements, 16 bytes");
    CHECK(error_of([](auto& p) { p.b.pointer += 1; }).find("must be a multiple of 16 bytes") != std::string::npos);
    CHECK(error_of([](auto& p) { p.out.pointer = nullptr; }) == "out.pointer: null; a matrix of 256 x 16 is needed");
    CHECK(error_of([](auto& p) { p.routing.sizes.tile_rows = 32; }) ==
          "routing.sizes.tile_rows: 32; must be 64 or 128, the rows of a tile");
    CHECK(error_of([](auto& p) { p.routing.tiles = nullptr; }) ==
          "routing.tiles: null; take the routing from moe_routing::in_workspace");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE GEMM: no hazard in any schedule, and every mutation is detected") {
    const auto check_rows = []<moe_rows Rows>(const char* name, std::integral_constant<moe_rows, Rows>) {
        using kernel = moe_gemm_hopper<bf16, bf16, Rows, epilogue::identity, 128,
                                       gemm_shape{.block_n = 128, .stages = 3, .cluster = 1}>;
        moe_gemm_trial<plain_experts<bf16>, bf16, Rows, false> trial(
            world::host, {{.tokens = 5, .experts = 2, .top_k = 1}, 136, 304}, 1);
        check_synchronisation<kernel>(name, {1}, kernel::describe(trial.upload(), {}), 100);
    };
    check_rows("MoE GEMM, gathered", std::integral_constant<moe_rows, gathered>{});
    check_rows("MoE GEMM, sorted", std::integral_constant<moe_rows, sorted>{});
}
#endif
