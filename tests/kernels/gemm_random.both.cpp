// Random bf16 and fp16 GEMMs in all layouts, with epilogues, through the launcher.
#include "kernels/gemm/random_cases.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;

double silu_of(double x) {
    return x / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE("random GEMMs: bf16, row-major A and B") {
    check_random_cases<bf16, bf16, row_major, row_major, epilogue::identity>(
        100, 110, 1, 0.005, [](world, const gemm_case&) { return epilogue::identity{}; }, as_product);
}

TEST_CASE("random GEMMs: bf16, column-major B, scale, bias and activation") {
    std::vector<bf16> bias(4096);
    fill_random(bias, 7);
    std::vector<std::unique_ptr<buffer<bf16>>> alive;
    using tested_epilogue =
        epilogue::composition<epilogue::scale, epilogue::bias<bf16>, epilogue::activation<activation::silu>>;
    check_random_cases<bf16, bf16, row_major, column_major, tested_epilogue>(
        200, 130, 1, 0.005,
        [&](world where, const gemm_case& sizes) {
            alive.push_back(std::make_unique<buffer<bf16>>(where, bias.size()));
            alive.back()->values = bias;
            return epilogue::compose(epilogue::scale{0.5f}, epilogue::bias<bf16>{{alive.back()->upload(), sizes.n}},
                                     epilogue::activation<activation::silu>{});
        },
        [&](double x, double, int, int, int column) { return silu_of(0.5 * x + number(bias[column])); });
}

TEST_CASE("random GEMMs: fp16, column-major A, ReLU") {
    check_random_cases<fp16, fp16, column_major, row_major, epilogue::activation<activation::relu>>(
        300, 110, 1, 0.0008, [](world, const gemm_case&) { return epilogue::activation<activation::relu>{}; },
        [](double x, double, int, int, int) { return x > 0 ? x : 0; });
}

TEST_CASE("random GEMMs: bf16 to float, column-major A and B, GELU") {
    check_random_cases<bf16, float, column_major, column_major, epilogue::activation<activation::gelu>>(
        400, 110, 1, 1e-5, [](world, const gemm_case&) { return epilogue::activation<activation::gelu>{}; },
        [](double x, double, int, int, int) { return 0.5 * x * (1 + std::erf(x * 0.7071067811865476)); });
}

TEST_CASE("random GEMMs: SwiGLU") {
    check_random_cases<bf16, bf16, row_major, column_major, epilogue::composition<epilogue::swiglu, epilogue::scale>>(
        500, 110, 1, 0.006,
        [](world, const gemm_case&) { return epilogue::compose(epilogue::swiglu{}, epilogue::scale{0.25f}); },
        [](double gate, double up, int, int, int) { return 0.25 * silu_of(gate) * up; });
}
