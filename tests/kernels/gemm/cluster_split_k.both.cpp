// The cluster split-K GEMM compared with float64: both layouts of B, ragged sizes, one and two blocks per tile, several
// tiles per block, GLU and composed epilogues; bitwise reproducible. No hazard in any schedule, and every mutation of
// its synchronisation is detected.
#include <imbrex/kernels/gemm/cluster_split_k.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;
constexpr cluster_split_k_shape alone{.cluster_size = 1}, by_two{};

template <class In, class Out, matrix_layout B, cluster_split_k_shape Shape = by_two,
          class Epilogue = epilogue::identity>
void check_cluster_split_k(int blocks, const gemm_case& sizes, double tolerance, Epilogue epilogue = {},
                           const std::function<double(double, double, int, int, int)>& expected = as_product) {
    using kernel = gemm_cluster_split_k<In, Out, Epilogue, B, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.m);
        CAPTURE(sizes.n);
        CAPTURE(sizes.k);
        CAPTURE(blocks);
        gemm_matrices<In, Out, row_major, B, epilogue::is_glu<Epilogue>> matrices(where, sizes, 1);
        const auto arguments = kernel::describe(matrices.upload(), epilogue);
        run<kernel>(where, {blocks}, arguments, 4);
        CHECK(matrices.worst(expected) <= tolerance);
        const auto first = matrices.out.values;
        run<kernel>(where, {blocks}, arguments, 1);
        matrices.out.download();
        CHECK(std::memcmp(first.data(), matrices.out.values.data(), first.size() * sizeof(Out)) == 0);
    }
}

}  // namespace

TEST_CASE("cluster split-K: both layouts of B, ragged sizes") {
    check_cluster_split_k<bf16, bf16, column_major>(6, {128, 304, 264}, 0.01);
    check_cluster_split_k<bf16, float, column_major>(4, {.m = 99, .n = 133, .k = 200, .out_gap = 3}, 1e-5);
    check_cluster_split_k<fp16, fp16, row_major>(4, {.m = 70, .n = 136, .k = 328, .a_gap = 8, .b_gap = 16}, 0.002);
    check_cluster_split_k<bf16, float, row_major>(2, {.m = 128, .n = 8, .k = 72}, 1e-5);
    check_cluster_split_k<bf16, bf16, column_major>(2, {1, 72, 136}, 0.01);
    check_cluster_split_k<fp16, float, column_major>(2, {64, 128, 584}, 1e-5);
}

TEST_CASE("cluster split-K: several tiles per cluster, and one block per tile") {
    check_cluster_split_k<bf16, float, column_major>(2, {100, 520, 392}, 1e-5);
    check_cluster_split_k<bf16, bf16, row_major>(4, {128, 648, 136}, 0.01);
    check_cluster_split_k<bf16, bf16, column_major, alone>(3, {99, 264, 200}, 0.01);
    check_cluster_split_k<fp16, float, row_major, alone>(2, {.m = 128, .n = 392, .k = 40, .out_gap = 5}, 1e-5);
}

TEST_CASE("cluster split-K: GLU and composed epilogues") {
    const auto gate = [](double gate, double up, int, int, int) { return gate / (1 + std::exp(-gate)) * up; };
    check_cluster_split_k<bf16, bf16, column_major>(8, {77, 200, 264}, 0.02, epilogue::swiglu{}, gate);
    check_cluster_split_k<bf16, float, row_major, alone>(2, {70, 136, 72}, 1e-4, epilogue::swiglu{}, gate);
    check_cluster_split_k<bf16, float, column_major>(
        2, {128, 72, 264}, 1e-4, epilogue::compose(epilogue::glu<activation::gelu>{}, epilogue::scale{0.5f}),
        [](double gate, double up, int, int, int) {
            return 0.25 * gate * (1 + std::erf(gate * 0.7071067811865476)) * up;
        });
}

TEST_CASE("cluster split-K: bias, activation and scale composed") {
    for (const world where : worlds()) {
        using chain = decltype(epilogue::compose(epilogue::bias<bf16>{}, epilogue::activation<activation::relu>{},
                                                 epilogue::scale{}));
        using kernel = gemm_cluster_split_k<bf16, float, chain, column_major>;
        const gemm_case sizes{107, 200, 136};
        buffer<bf16> bias(where, sizes.n);
        fill_random(bias.values, 9);
        gemm_matrices<bf16, float, row_major, column_major, false> matrices(where, sizes, 1);
        run<kernel>(
            where, {4},
            kernel::describe(matrices.upload(),
                             epilogue::compose(epilogue::bias<bf16>{{bias.upload(), sizes.n}},
                                               epilogue::activation<activation::relu>{}, epilogue::scale{0.5f})));
        CHECK(matrices.worst([&](double product, double, int, int, int column) {
            return 0.5 * std::max(0.0, product + number(bias.values[column]));
        }) <= 1e-5);
    }
}

TEST_CASE("cluster split-K: rejects too many rows and too small a K") {
    using kernel = gemm_cluster_split_k<bf16, bf16, epilogue::identity, column_major>;
    gemm_matrices<bf16, bf16, row_major, column_major, false> matrices(world::host, {128, 72, 72}, 1);
    auto problem = matrices.upload();
    problem.m = 129;
    CHECK(error_message_of([&] { kernel::describe(problem, {}); }) == "m: 129; this kernel takes 1 to 128 rows");
    problem.m = 128;
    problem.k = 64;
    CHECK(error_message_of([&] { kernel::describe(problem, {}); }) == "k: 64; each of 2 blocks needs a step of 64");
}

#if !defined(__CUDACC__)
namespace {

template <cluster_split_k_shape Shape, class Epilogue>
void check_silent_and_mutate(int blocks, const gemm_case& sizes) {
    using kernel = gemm_cluster_split_k<bf16, bf16, Epilogue, column_major, Shape>;
    gemm_matrices<bf16, bf16, row_major, column_major, epilogue::is_glu<Epilogue>> matrices(world::host, sizes, 1);
    const auto arguments = kernel::describe(matrices.upload(), {});
    check_synchronisation<kernel>("cluster split-K GEMM", {blocks}, arguments);
}

}  // namespace

TEST_CASE("cluster split-K: no hazard in any schedule, and every mutation is detected") {
    check_silent_and_mutate<cluster_split_k_shape{.stages = 2}, epilogue::identity>(2, {70, 264, 392});
    check_silent_and_mutate<cluster_split_k_shape{.stages = 2}, epilogue::swiglu>(2, {70, 200, 264});
    check_silent_and_mutate<cluster_split_k_shape{.cluster_size = 1, .stages = 2}, epilogue::identity>(1,
                                                                                                       {70, 264, 200});
}
#endif
