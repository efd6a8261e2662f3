// Products of the chosen experts for few tokens beside plain loops in float64: packed and 16-bit weights, gathered and
// sorted rows, experts with more rows than a tile, gated epilogues, invalid arguments. No hazard in any schedule, and every
// mutation of its synchronisation is detected.
#include <imbrex/kernels/moe_combine.hpp>
#include <imbrex/kernels/moe_gemv.hpp>
#include <imbrex/kernels/moe_router.hpp>

#include "kernels/moe_gemm_trial.hpp"
#include "synchronisation.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Weights, class Out, moe_rows Rows, class Epilogue = epilogue::identity>
void check(
    const moe_gemm_case& one, double tolerance,
    const std::function<Epilogue(world)>& epilogue = [](world) { return Epilogue{}; },
    const expected_value& expected = [](double x, double, int, int) { return x; }) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(one.sizes.tokens);
        CAPTURE(one.n);
        CAPTURE(one.k);
        moe_gemm_trial<packed_experts<Weights>, Out, Rows, epilogue::is_glu<Epilogue>> trial(where, one, 1);
        moe_gemv<Weights, Out, Rows, Epilogue>::launch(where, trial.upload(), trial.b.tiles.upload(), epilogue(where));
        CHECK(trial.worst(expected) <= tolerance);
    }
}

constexpr moe_rows gathered = moe_rows::gathered, sorted = moe_rows::sorted;

}  // namespace

TEST_CASE("MoE GEMV: packed weights") {
    check<mxfp4_weights<bf16>, float, gathered>({{1, 8, 4, 8}, 192, 2080}, 1e-5);
    check<mxfp4_weights<bf16>, bf16, sorted>({{5, 4, 2, 8}, 64, 320, true, 8, 0, 8}, 0.01);
    check<int4_weights<bf16, 32>, float, gathered>({{20, 3, 2, 16}, 128, 352}, 1e-4);
    check<mxfp4_weights<fp16>, float, gathered>({{32, 4, 2, 16}, 64, 96, true}, 1e-5);
    check<mxfp4_weights<bf16>, float, sorted>({{32, 27, 1, 8}, 1280, 96}, 1e-5);  // many tiles: blocks of four warps
}

TEST_CASE("MoE GEMV: the rows of a tile follow the mean of an expert") {
    CHECK(moe_gemv_tile_rows(32, 32, 4) == 8);
    CHECK(moe_gemv_tile_rows(40, 32, 4) == 8);
    CHECK(moe_gemv_tile_rows(41, 32, 4) == 16);
    CHECK(moe_gemv_tile_rows(1, 8, 8) == 8);
}

TEST_CASE("MoE GEMV: 16-bit weights") {
    using weights = unquantised_weights<bf16, 64>;
    const moe_gemm_case one{{9, 5, 2, 8}, 128, 200, true};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        moe_gemm_trial<plain_experts<bf16>, float, gathered, false> trial(where, one, 1);
        const auto problem = trial.upload();
        moe_gemv<weights, float, gathered>::launch(where, problem, problem.b);
        CHECK(trial.worst([](double x, double, int, int) { return x; }) <= 1e-5);
    }
}

TEST_CASE("MoE GEMV: the clamped SwiGLU and the biases of each expert") {
    const moe_gemm_case one{{3, 6, 2, 8}, 128, 160};
    clamped_swiglu_case clamped(6, 128);
    check<mxfp4_weights<bf16>, bf16, gathered, clamped_swiglu_case::type>(one, 0.02, clamped.epilogue(),
                                                                          clamped.expected());
}

TEST_CASE("MoE GEMV: error messages") {
    using weights = mxfp4_weights<bf16>;
    moe_gemm_trial<packed_experts<weights>, bf16, gathered, false> trial(world::host, {{2, 2, 1, 8}, 64, 64}, 1);
    const auto error_of = [&](const auto& change) {
        auto problem = trial.upload();
        change(problem);
        return error_message_of(
            [&] { moe_gemv<weights, bf16, gathered>::launch(world::host, problem, trial.b.tiles.upload()); });
    };
    CHECK(error_of([](auto& p) { p.routing.sizes.tile_rows = 64; }) ==
          "routing.sizes.tile_rows: 64; must be 8 or 16, the rows of a tile");
    CHECK(error_of([](auto& p) { p.n = 60; }) == "n: 60; must be a multiple of 64");
    CHECK(error_of([](auto& p) { p.k = 60; }) == "k: 60; rows of A must end at a multiple of 16 bytes");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE GEMV: no hazard in any schedule, and every mutation is detected") {
    using weights = mxfp4_weights<bf16>;
    moe_gemm_trial<packed_experts<weights>, bf16, gathered, false> trial(world::host, {{2, 2, 1, 8}, 64, 2080}, 1);
    using product = moe_gemv<weights, bf16, gathered>;
    const auto arguments = product::arguments_of<product::kernel<8>>(trial.upload(), trial.b.tiles.upload(), {});
    check_synchronisation<product::kernel<8>>("MoE GEMV", {2}, arguments, 100);
}

// The second product reads the routing before it waits for the first.
TEST_CASE("MoE GEMV: a layer of overlapping launches has no hazard, and every mutation of its PDL is detected") {
    using weights = mxfp4_weights<bf16>;
    constexpr moe_sizes sizes{.tokens = 2, .experts = 3, .top_k = 2, .tile_rows = 8};
    constexpr int hidden = 64, ffn = 64;
    routing_trial routing(world::host, sizes);
    packed_experts<weights> gate_up(world::host, 2 * ffn * sizes.experts, hidden, 0, 1),
        down(world::host, hidden * sizes.experts, ffn, 0, 2);
    std::vector<float> logits(sizes.tokens * sizes.experts);
    std::vector<bf16> x(sizes.tokens * hidden), h(sizes.max_rows() * ffn), y(sizes.max_rows() * hidden), out(x.size());
    fill_random(logits, 3);
    fill_random(x, 4);
    check_stream(
        "MoE layer",
        [&] {
            const world where = world::host_checked;
            moe_router<float>::launch(
                where, {as_rows<const float>(logits.data(), sizes.tokens, sizes.experts), routing.routing});
            moe_gemv<weights, bf16, gathered, epilogue::glu<activation::silu>>::launch(
                where, {.n = ffn, .k = hidden, .routing = routing.routing, .a = {x.data()}, .out = {h.data()}},
                gate_up.tiles.upload());
            moe_gemv<weights, bf16, sorted>::launch(
                where, {.n = hidden, .k = ffn, .routing = routing.routing, .a = {h.data()}, .out = {y.data()}},
                down.tiles.upload());
            moe_combine<bf16>::launch(
                where, {.y = {y.data()}, .routing = routing.routing, .out = as_rows(out.data(), sizes.tokens, hidden)});
        },
        20);
}
#endif
