// The grouped GEMM over experts with quantised weights beside plain loops in float64: every format, gathered and sorted
// rows, uneven experts, a gated epilogue, scales that the epilogue applies, invalid arguments. No hazard in any schedule,
// and every mutation of its synchronisation is detected.
#include <imbrex/kernels/moe_gemm/dequantising.hpp>
#include <imbrex/kernels/moe_gemm_quantised.hpp>

#include "kernels/moe_gemm_trial.hpp"
#include "synchronisation.hpp"

#include <memory>

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
        CAPTURE(one.n);
        CAPTURE(one.k);
        moe_gemm_trial<packed_experts<Weights>, Out, Rows, epilogue::is_glu<Epilogue>> trial(where, one, 1);
        moe_gemm_quantised<Weights, Out, Rows, Epilogue>::launch(where, trial.upload(), trial.b.tiles.upload(),
                                                                 epilogue(where));
        CHECK(trial.worst(expected) <= tolerance);
    }
}

constexpr moe_rows gathered = moe_rows::gathered, sorted = moe_rows::sorted;

}  // namespace

TEST_CASE("MoE GEMM, quantised: MXFP4") {
    check<mxfp4_weights<bf16>, float, gathered>({{.tokens = 150, .experts = 3, .top_k = 2}, 320, 352}, 1e-5);
    check<mxfp4_weights<bf16, 64>, bf16, sorted>({{.tokens = 20, .experts = 4, .top_k = 2}, 64, 64, true}, 0.01);
    check<mxfp4_weights<bf16, 64>, bf16, gathered>({{70, 3, 2, 64}, 128, 320, true}, 0.01);
    check<mxfp4_weights<fp16>, float, gathered>({{.tokens = 1, .experts = 8, .top_k = 4}, 256, 96, false, 8}, 1e-5);
}

TEST_CASE("MoE GEMM, quantised: int4 and int8 groups, rounded to the type of A") {
    check<int4_weights<bf16, 128>, float, gathered>({{.tokens = 30, .experts = 3, .top_k = 2}, 320, 384}, 0.01);
    check<int4_weights<fp16, 32>, float, sorted>({{
                                                      .tokens = 30,
                                                      .experts = 3,
                                                      .top_k = 2,
                                                  },
                                                  64,
                                                  128,
                                                  true},
                                                 0.001);
    check<grouped_weights<bf16, std::int8_t, 64>, float, sorted>({{.tokens = 30, .experts = 2, .top_k = 1}, 128, 320},
                                                                 0.06);
}

TEST_CASE("MoE GEMM, quantised: scales of rows that the epilogue applies") {
    const moe_gemm_case one{{.tokens = 40, .experts = 3, .top_k = 2}, 192, 136};
    std::vector<float> scales(3 * 192);
    fill_random(scales, 9, 0.001f, 0.02f);
    std::vector<std::unique_ptr<buffer<float>>> alive;
    const auto scaled = [&](world where) {
        alive.push_back(std::make_unique<buffer<float>>(where, scales.size()));
        alive.back()->values = scales;
        return epilogue::scale_columns{{alive.back()->upload(), 192, 192}};
    };
    const auto expected = [&](double x, double, int expert, int column) { return x * scales[expert * 192 + column]; };
    check<int8_weights<bf16>, float, gathered, epilogue::scale_columns>(one, 1e-5, scaled, expected);
    check<e4m3_weights<fp16>, float, sorted, epilogue::scale_columns>(one, 1e-4, scaled, expected);
}

TEST_CASE("MoE GEMM, quantised: the clamped SwiGLU of MXFP4 experts with biases") {
    const moe_gemm_case one{{.tokens = 50, .experts = 3, .top_k = 2}, 192, 160, true};
    clamped_swiglu_case clamped(3, 192);
    check<mxfp4_weights<bf16>, bf16, gathered, clamped_swiglu_case::type>(one, 0.02, clamped.epilogue(),
                                                                          clamped.expected());
}

TEST_CASE("MoE GEMM, quantised: error messages") {
    using weights = mxfp4_weights<bf16>;
    moe_gemm_trial<packed_experts<weights>, bf16, gathered, false> trial(
        world::host, {{.tokens = 4, .experts = 2, .top_k = 1}, 64, 64}, 1);
    const auto error_of = [&](const weights::weight_tile* tiles, const auto& change) {
        auto problem = trial.upload();
        change(problem);
        return error_message_of(
            [&] { moe_gemm_quantised<weights, bf16, gathered>::launch(world::host, problem, tiles); });
    };
    const auto* tiles = trial.b.tiles.upload();
    CHECK(error_of(tiles, [](auto& p) { p.n = 32; }) == "n: 32; with quantised weights it must be a multiple of 64");
    CHECK(error_of(tiles, [](auto& p) { p.k = 0; }) == "k: 0; must be positive");
    CHECK(error_of(nullptr, [](auto&) {}) == "tiles: null; packed weights of 128 x 64 are needed");
}

#if !defined(__CUDACC__)
namespace {

template <class Weights, moe_rows Rows, class Epilogue>
void check_rows(const char* name) {
    using kernel = moe_gemm_dequantising<Weights, bf16, Rows, Epilogue, 64, 3>;
    constexpr bool gate = epilogue::is_glu<Epilogue>;
    moe_gemm_trial<packed_experts<Weights>, bf16, Rows, gate> trial(world::host, {{5, 2, 1, 64}, 64, 640}, 1);
    check_synchronisation<kernel>(name, {1}, kernel::describe(trial.upload(), Epilogue{}, trial.b.tiles.upload()), 100);
}

}  // namespace

TEST_CASE("MoE GEMM, quantised: no hazard in any schedule, and every mutation is detected") {
    check_rows<mxfp4_weights<bf16, 64>, gathered, epilogue::identity>("MoE GEMM, MXFP4, gathered");
    check_rows<mxfp4_weights<bf16, 128>, sorted, epilogue::identity>("MoE GEMM, MXFP4, sorted");
    check_rows<int4_weights<bf16, 64, bf16, 64>, sorted, epilogue::swiglu>("MoE GEMM, int4, GLU");
}
#endif
