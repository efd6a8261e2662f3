// The Hopper GEMM compared with float64: ragged sizes, the four operand layouts, clusters of one and two, batches,
// grouped problems, GLU, outputs that TMA cannot store. No hazard in any schedule, and every mutation of its
// synchronisation is detected.
#include <imbrex/kernels/gemm/hopper.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr gemm_shape alone{.cluster = 1};
constexpr gemm_shape narrow{.block_n = 128, .stages = 3, .cluster = 2, .group_m = 2};

template <class In, class Out, matrix_layout A, matrix_layout B, gemm_shape Shape, class Epilogue = epilogue::identity>
void check_gemm(int blocks, const gemm_case& sizes, double tolerance, Epilogue epilogue = {},
                const std::function<double(double, double, int, int, int)>& expected = as_product) {
    using kernel = gemm_hopper<In, Out, Epilogue, A, B, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.m);
        CAPTURE(sizes.n);
        CAPTURE(sizes.k);
        gemm_matrices<In, Out, A, B, epilogue::is_glu<Epilogue>> matrices(where, sizes, 1);
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.upload(), epilogue)}, 1}, 4);
        CHECK(matrices.worst(expected) <= tolerance);
    }
}

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;

}  // namespace

TEST_CASE("Hopper GEMM: every operand layout") {
    check_gemm<bf16, bf16, row_major, row_major, gemm_shape{}>(2, {200, 264, 136}, 0.01);
    check_gemm<bf16, bf16, row_major, column_major, gemm_shape{}>(2, {72, 136, 200}, 0.01);
    check_gemm<fp16, fp16, column_major, row_major, narrow>(4, {264, 304, 72}, 0.002);
    check_gemm<bf16, bf16, column_major, column_major, alone>(3, {136, 520, 64}, 0.01);
}

TEST_CASE("Hopper GEMM: many tiles per block") {
    check_gemm<bf16, bf16, row_major, row_major, narrow>(2, {520, 392, 200}, 0.01);
    check_gemm<bf16, float, row_major, row_major, narrow>(4, {8, 16, 8}, 1e-5);
}

TEST_CASE("Hopper GEMM: batches with row strides, and one B shared by all batches") {
    check_gemm<bf16, bf16, row_major, row_major, narrow>(2, {.m = 136, .n = 136, .k = 72, .batches = 3}, 0.01);
    check_gemm<bf16, float, row_major, column_major, alone>(
        3, {.m = 40, .n = 72, .k = 80, .batches = 4, .a_gap = 8, .b_gap = 16, .out_gap = 4, .share_b = true}, 1e-5);
}

TEST_CASE("Hopper GEMM: stores from registers if TMA cannot store D") {
    check_gemm<bf16, bf16, row_major, column_major, narrow>(2, {.m = 130, .n = 133, .k = 64}, 0.01);
    check_gemm<bf16, float, row_major, column_major, alone>(1, {.m = 5, .n = 1, .k = 8, .out_gap = 3}, 1e-5);
    check_gemm<fp16, fp16, column_major, column_major, narrow>(2, {.m = 64, .n = 128, .k = 64, .out_gap = 5}, 0.002);
}

TEST_CASE("Hopper GEMM: GLU") {
    const auto expected = [](double gate, double up, int, int, int) { return gate / (1 + std::exp(-gate)) * up; };
    check_gemm<bf16, bf16, row_major, column_major, gemm_shape{}>(2, {140, 136, 72}, 0.02, epilogue::swiglu{},
                                                                  expected);
    check_gemm<bf16, float, row_major, row_major, alone>(1, {24, 264, 40}, 1e-4, epilogue::swiglu{}, expected);
    check_gemm<bf16, float, row_major, column_major, gemm_shape{}>(
        4, {72, 296, 40}, 1e-4, epilogue::compose(epilogue::glu<activation::gelu>{}, epilogue::scale{0.5f}),
        [](double gate, double up, int, int, int) {
            return 0.25 * gate * (1 + std::erf(gate * 0.7071067811865476)) * up;
        });
}

TEST_CASE("Hopper GEMM: grouped problems of different sizes in one launch") {
    using kernel =
        gemm_hopper<bf16, float, epilogue::identity, row_major, column_major, narrow, accumulate_in_place, 4>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        using matrices = gemm_matrices<bf16, float, row_major, column_major, false>;
        matrices first(where, {300, 136, 64}, 1), second(where, {.m = 1, .n = 520, .k = 136, .batches = 2}, 3),
            third(where, {130, 8, 8}, 5);
        const typename kernel::arguments arguments{
            {kernel::describe(first.upload(), {}), kernel::describe(second.upload(), {}),
             kernel::describe(third.upload(), {})},
            3};
        run<kernel>(where, {4}, arguments, 4);
        CHECK(first.worst(as_product) <= 1e-5);
        CHECK(second.worst(as_product) <= 1e-5);
        CHECK(third.worst(as_product) <= 1e-5);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("Hopper GEMM: no hazard in any schedule, and every mutation is detected") {
    const auto check = []<gemm_shape Shape>(std::integral_constant<gemm_shape, Shape>, const gemm_case& sizes) {
        using kernel = gemm_hopper<bf16, bf16, epilogue::identity, row_major, row_major, Shape>;
        gemm_matrices<bf16, bf16, row_major, row_major, false> matrices(world::host, sizes, 1);
        const typename kernel::arguments arguments{{kernel::describe(matrices.upload(), {})}, 1};
        check_synchronisation<kernel>("Hopper GEMM", {2}, arguments);
    };
    check(std::integral_constant<gemm_shape, gemm_shape{128, 64, 2, 2, 2}>{}, {264, 136, 200});
    check(std::integral_constant<gemm_shape, gemm_shape{128, 64, 2, 1, 2}>{}, {100, 520, 200});
}
#endif
