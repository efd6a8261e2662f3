// The small-M GEMM compared with float64: both layouts of B, ragged sizes, cluster split-K and several tiles per block,
// GLU and composed epilogues; bitwise reproducible. No hazard in any schedule, and every mutation of its
// synchronisation is detected.
#include <imbrex/kernels/gemm/small_m.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;

template <class In, class Out, matrix_layout B, int Rows, small_m_shape Shape = small_m_shape{}, int BlockK = 64,
          class Epilogue = epilogue::identity>
void check_small_m(int blocks, const gemm_case& sizes, double tolerance, Epilogue epilogue = {},
                   const std::function<double(double, double, int, int, int)>& expected = as_product) {
    using weights = unquantised_tma_weights<In, B, BlockK>;
    using kernel = gemm_small_m<weights, Out, Epilogue, Rows, Shape>;
    constexpr bool gate = epilogue::is_glu<Epilogue>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.m);
        CAPTURE(sizes.n);
        CAPTURE(sizes.k);
        CAPTURE(blocks);
        gemm_matrices<In, Out, row_major, B, gate> matrices(where, sizes, 1);
        const auto problem = matrices.upload();
        const auto arguments =
            kernel::describe(problem, weights::describe(problem.b, sizes.n * (gate ? 2 : 1), sizes.k), epilogue);
        run<kernel>(where, {blocks}, arguments, 4);
        CHECK(matrices.worst(expected) <= tolerance);
        const auto first = matrices.out.values;
        run<kernel>(where, {blocks}, arguments, 1);
        matrices.out.download();
        CHECK(std::memcmp(first.data(), matrices.out.values.data(), first.size() * sizeof(Out)) == 0);
    }
}

constexpr small_m_shape by_two{.cluster_size = 2}, by_four{.cluster_size = 4}, by_eight{.cluster_size = 8};
constexpr small_m_shape early{.pdl_prefetch_weights = true},
    early_by_two{.cluster_size = 2, .pdl_prefetch_weights = true};

}  // namespace

TEST_CASE("small-M GEMM: both layouts of B, ragged sizes") {
    check_small_m<bf16, bf16, column_major, 8>(3, {1, 304, 264}, 0.01);
    check_small_m<bf16, float, column_major, 16>(2, {.m = 13, .n = 133, .k = 200, .out_gap = 3}, 1e-5);
    check_small_m<fp16, fp16, row_major, 32>(2, {.m = 29, .n = 136, .k = 328, .a_gap = 8, .b_gap = 16}, 0.002);
    check_small_m<bf16, bf16, row_major, 8>(2, {.m = 5, .n = 200, .k = 100, .a_gap = 4}, 0.01);
    check_small_m<fp16, float, column_major, 64>(1, {64, 72, 72}, 1e-5);
    check_small_m<bf16, float, column_major, 8, by_two, 128>(4, {6, 200, 520}, 1e-5);
    check_small_m<fp16, float, row_major, 16, small_m_shape{}, 128>(2, {12, 136, 200}, 1e-5);
}

TEST_CASE("small-M GEMM: up to 64 rows") {
    check_small_m<bf16, bf16, column_major, 64>(3, {61, 264, 200}, 0.01);
    check_small_m<bf16, float, row_major, 56>(2, {.m = 50, .n = 136, .k = 136}, 1e-5);
    check_small_m<bf16, bf16, column_major, 64, by_two>(2, {64, 264, 200}, 0.01);
}

TEST_CASE("small-M GEMM: several tiles per block, and cluster split-K") {
    check_small_m<bf16, float, column_major, 8>(1, {4, 328, 72}, 1e-5);
    check_small_m<bf16, float, column_major, 8>(2, {4, 648, 72}, 1e-5);
    check_small_m<bf16, float, column_major, 16, by_two>(2, {9, 328, 392}, 1e-5);
    check_small_m<bf16, float, row_major, 8, by_two>(6, {8, 264, 136}, 1e-5);
    check_small_m<bf16, float, column_major, 32, by_four>(4, {31, 264, 328}, 1e-5);
    check_small_m<fp16, fp16, column_major, 8, by_eight>(8, {3, 136, 584}, 0.002);
}

TEST_CASE("small-M GEMM: PDL prefetch of weights") {
    check_small_m<bf16, float, column_major, 8, early>(2, {7, 392, 1160}, 1e-4);
    check_small_m<bf16, float, column_major, 16, early_by_two>(2, {7, 264, 200}, 1e-5);
}

TEST_CASE("small-M GEMM: GLU and composed epilogues") {
    const auto gate = [](double gate, double up, int, int, int) { return gate / (1 + std::exp(-gate)) * up; };
    check_small_m<bf16, bf16, column_major, 8>(3, {5, 200, 264}, 0.02, epilogue::swiglu{}, gate);
    check_small_m<bf16, float, row_major, 64>(2, {60, 136, 72}, 1e-4, epilogue::swiglu{}, gate);
    check_small_m<bf16, float, column_major, 16, by_two>(4, {16, 200, 264}, 1e-4, epilogue::swiglu{}, gate);
    check_small_m<bf16, float, column_major, 8, by_four>(
        4, {2, 72, 264}, 1e-4, epilogue::compose(epilogue::glu<activation::gelu>{}, epilogue::scale{0.5f}),
        [](double gate, double up, int, int, int) {
            return 0.25 * gate * (1 + std::erf(gate * 0.7071067811865476)) * up;
        });
}

TEST_CASE("small-M GEMM: bias, activation and scale composed") {
    for (const world where : worlds()) {
        using chain = decltype(epilogue::compose(epilogue::bias<bf16>{}, epilogue::activation<activation::relu>{},
                                                 epilogue::scale{}));
        using weights = unquantised_tma_weights<bf16, column_major, 64>;
        using kernel = gemm_small_m<weights, float, chain, 8, by_two>;
        const gemm_case sizes{7, 200, 136};
        buffer<bf16> bias(where, sizes.n);
        fill_random(bias.values, 9);
        gemm_matrices<bf16, float, row_major, column_major, false> matrices(where, sizes, 1);
        const auto problem = matrices.upload();
        run<kernel>(
            where, {2},
            kernel::describe(problem, weights::describe(problem.b, sizes.n, sizes.k),
                             epilogue::compose(epilogue::bias<bf16>{{bias.upload(), sizes.n}},
                                               epilogue::activation<activation::relu>{}, epilogue::scale{0.5f})));
        CHECK(matrices.worst([&](double product, double, int, int, int column) {
            return 0.5 * std::max(0.0, product + number(bias.values[column]));
        }) <= 1e-5);
    }
}

TEST_CASE("small-M GEMM: cluster size and grid follow from the sizes") {
    CHECK(small_m_cluster_size(8, 64, 64, 132) == 1);
    CHECK(small_m_cluster_size(8, 32, 112, 132) == 2);
    CHECK(small_m_cluster_size(8, 16, 64, 132) == 4);
    CHECK(small_m_cluster_size(8, 16, 1, 132) == 1);
    CHECK(small_m_cluster_size(128, 64, 128, 132) == 2);
    CHECK(small_m_cluster_size(128, 32, 128, 132) == 2);
    CHECK(small_m_cluster_size(128, 112, 64, 132) == 1);
    using kernel = gemm_small_m<unquantised_tma_weights<bf16, column_major>, bf16, epilogue::identity, 8, by_two>;
    CHECK(kernel::blocks_of(128 * 60, 132) == 120);
    CHECK(kernel::blocks_of(128 * 67, 132) == 68);
    CHECK(kernel::blocks_of(1, 132) == 2);
}

#if !defined(__CUDACC__)
namespace {

template <small_m_shape Shape, class Epilogue, int Rows>
void check_silent_and_mutate(int blocks, const gemm_case& sizes) {
    using weights = unquantised_tma_weights<bf16, column_major, 64>;
    using kernel = gemm_small_m<weights, bf16, Epilogue, Rows, Shape>;
    constexpr bool gate = epilogue::is_glu<Epilogue>;
    gemm_matrices<bf16, bf16, row_major, column_major, gate> matrices(world::host, sizes, 1);
    const auto problem = matrices.upload();
    const auto arguments =
        kernel::describe(problem, weights::describe(problem.b, sizes.n * (gate ? 2 : 1), sizes.k), {});
    check_synchronisation<kernel>("small-M GEMM", {blocks}, arguments);
}

}  // namespace

TEST_CASE("small-M GEMM: no hazard in any schedule, and every mutation is detected") {
    check_silent_and_mutate<small_m_shape{.stages = 2}, epilogue::identity, 8>(2, {5, 520, 200});
    check_silent_and_mutate<small_m_shape{.cluster_size = 2, .stages = 2, .pdl_prefetch_weights = true},
                            epilogue::identity, 16>(2, {16, 264, 392});
    check_silent_and_mutate<small_m_shape{.stages = 2}, epilogue::swiglu, 8>(1, {5, 200, 200});
    check_silent_and_mutate<small_m_shape{.cluster_size = 2, .stages = 2}, epilogue::swiglu, 8>(2, {5, 200, 392});
    check_silent_and_mutate<small_m_shape{.cluster_size = 2, .stages = 2}, epilogue::identity, 64>(2, {60, 264, 200});
}
#endif
