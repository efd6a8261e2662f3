// The GEMM for few rows against plain loops in double: both ways in which weights are stored, ragged sizes, blocks that share
// tiles and blocks with several, gates and chains of epilogues; the same bits twice; checked over many schedules, and every
// mutant of its synchronisation reported.
#include <imbrex/kernels/gemm/few_rows.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

#include <cstring>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr stored normal = stored::normal, transposed = stored::transposed;

template <class In, class Out, stored B, int Rows, few_rows_shape Shape = few_rows_shape{}, int Depth = 64,
          class Epilogue = plain_product>
void check_few_rows(int blocks, const gemm_case& sizes, double tolerance, Epilogue epilogue = {},
                    const std::function<double(double, double, int, int, int)>& expected = as_product) {
    using weights = weights_as_stored<In, B, Depth>;
    using kernel = gemm_few_rows<weights, Out, Epilogue, Rows, Shape>;
    constexpr bool gate = is_gated<Epilogue>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.m);
        CAPTURE(sizes.n);
        CAPTURE(sizes.k);
        CAPTURE(blocks);
        gemm_matrices<In, Out, normal, B, gate> matrices(where, sizes, 1);
        const auto problem = matrices.send();
        const auto arguments =
            kernel::describe(problem, weights::describe(problem.b, sizes.n * (gate ? 2 : 1), sizes.k), epilogue);
        run<kernel>(where, {blocks}, arguments, 4);
        CHECK(matrices.worst(expected) <= tolerance);
        const auto first = matrices.out.values;
        run<kernel>(where, {blocks}, arguments, 1);
        matrices.out.fetch();
        CHECK(std::memcmp(first.data(), matrices.out.values.data(), first.size() * sizeof(Out)) == 0);
    }
}

constexpr few_rows_shape by_two{.sharers = 2}, by_four{.sharers = 4}, by_eight{.sharers = 8};
constexpr few_rows_shape early{.early = true}, early_by_two{.sharers = 2, .early = true};

}  // namespace

TEST_CASE("few rows, weights stored in both ways, ragged") {
    check_few_rows<bf16, bf16, transposed, 8>(3, {1, 304, 264}, 0.01);
    check_few_rows<bf16, float, transposed, 16>(2, {.m = 13, .n = 133, .k = 200, .out_gap = 3}, 1e-5);
    check_few_rows<fp16, fp16, normal, 32>(2, {.m = 29, .n = 136, .k = 328, .a_gap = 8, .b_gap = 16}, 0.002);
    check_few_rows<bf16, bf16, normal, 8>(2, {.m = 5, .n = 200, .k = 100, .a_gap = 4}, 0.01);
    check_few_rows<fp16, float, transposed, 64>(1, {64, 72, 72}, 1e-5);
    check_few_rows<bf16, float, transposed, 8, by_two, 128>(4, {6, 200, 520}, 1e-5);
    check_few_rows<fp16, float, normal, 16, few_rows_shape{}, 128>(2, {12, 136, 200}, 1e-5);
}

TEST_CASE("more rows") {
    check_few_rows<bf16, bf16, transposed, 64>(3, {61, 264, 200}, 0.01);
    check_few_rows<bf16, float, normal, 56>(2, {.m = 50, .n = 136, .k = 136}, 1e-5);
    check_few_rows<bf16, bf16, transposed, 64, by_two>(2, {64, 264, 200}, 0.01);
}

TEST_CASE("blocks have several tiles, or share them") {
    check_few_rows<bf16, float, transposed, 8>(1, {4, 328, 72}, 1e-5);
    check_few_rows<bf16, float, transposed, 8>(2, {4, 648, 72}, 1e-5);
    check_few_rows<bf16, float, transposed, 16, by_two>(2, {9, 328, 392}, 1e-5);
    check_few_rows<bf16, float, normal, 8, by_two>(6, {8, 264, 136}, 1e-5);
    check_few_rows<bf16, float, transposed, 32, by_four>(4, {31, 264, 328}, 1e-5);
    check_few_rows<fp16, fp16, transposed, 8, by_eight>(8, {3, 136, 584}, 0.002);
}

TEST_CASE("weights loaded before the kernel before is done") {
    check_few_rows<bf16, float, transposed, 8, early>(2, {7, 392, 1160}, 1e-4);
    check_few_rows<bf16, float, transposed, 16, early_by_two>(2, {7, 264, 200}, 1e-5);
}

TEST_CASE("a gate joins the two halves of the weights, and epilogues are joined") {
    const auto gate = [](double gate, double up, int, int, int) { return gate / (1 + std::exp(-gate)) * up; };
    check_few_rows<bf16, bf16, transposed, 8>(3, {5, 200, 264}, 0.02, gated<silu>{}, gate);
    check_few_rows<bf16, float, normal, 64>(2, {60, 136, 72}, 1e-4, gated<silu>{}, gate);
    check_few_rows<bf16, float, transposed, 16, by_two>(4, {16, 200, 264}, 1e-4, gated<silu>{}, gate);
    check_few_rows<bf16, float, transposed, 8, by_four>(
        4, {2, 72, 264}, 1e-4, then(gated<gelu>{}, scaled{0.5f}), [](double gate, double up, int, int, int) {
            return 0.25 * gate * (1 + std::erf(gate * 0.7071067811865476)) * up;
        });
}

TEST_CASE("bias, activation and scale in one chain") {
    for (const world where : worlds()) {
        using chain = decltype(then(biased<bf16>{}, activated<relu>{}, scaled{}));
        using weights = weights_as_stored<bf16, transposed, 64>;
        using kernel = gemm_few_rows<weights, float, chain, 8, by_two>;
        const gemm_case sizes{7, 200, 136};
        buffer<bf16> bias(where, sizes.n);
        fill_random(bias.values, 9);
        gemm_matrices<bf16, float, normal, transposed, false> matrices(where, sizes, 1);
        const auto problem = matrices.send();
        run<kernel>(where, {2},
                    kernel::describe(problem, weights::describe(problem.b, sizes.n, sizes.k),
                                     then(biased<bf16>{{bias.send(), sizes.n}}, activated<relu>{}, scaled{0.5f})));
        CHECK(matrices.worst([&](double product, double, int, int, int column) {
            return 0.5 * std::max(0.0, product + number(bias.values[column]));
        }) <= 1e-5);
    }
}

TEST_CASE("as many blocks share a tile as it takes, and each has the same number of tiles") {
    CHECK(few_rows_sharers(8, 64, 64, 132) == 1);
    CHECK(few_rows_sharers(8, 32, 112, 132) == 2);
    CHECK(few_rows_sharers(8, 16, 64, 132) == 4);
    CHECK(few_rows_sharers(8, 16, 1, 132) == 1);
    CHECK(few_rows_sharers(128, 64, 128, 132) == 2);
    CHECK(few_rows_sharers(128, 32, 128, 132) == 2);
    CHECK(few_rows_sharers(128, 112, 64, 132) == 1);
    using kernel = gemm_few_rows<weights_as_stored<bf16, transposed>, bf16, plain_product, 8, by_two>;
    CHECK(kernel::blocks_of(128 * 60, 132) == 120);
    CHECK(kernel::blocks_of(128 * 67, 132) == 68);
    CHECK(kernel::blocks_of(1, 132) == 2);
}

#if !defined(__CUDACC__)
namespace {

template <few_rows_shape Shape, class Epilogue, int Rows>
void check_silent_and_mutate(int blocks, const gemm_case& sizes) {
    using weights = weights_as_stored<bf16, transposed, 64>;
    using kernel = gemm_few_rows<weights, bf16, Epilogue, Rows, Shape>;
    constexpr bool gate = is_gated<Epilogue>;
    gemm_matrices<bf16, bf16, normal, transposed, gate> matrices(world::host, sizes, 1);
    const auto problem = matrices.send();
    const auto arguments =
        kernel::describe(problem, weights::describe(problem.b, sizes.n * (gate ? 2 : 1), sizes.k), {});
    check_synchronisation<kernel>("GEMM for few rows", {blocks}, arguments);
}

}  // namespace

TEST_CASE("the GEMM for few rows is silent over 1,000 schedules, and each of its mutants is told") {
    check_silent_and_mutate<few_rows_shape{.stages = 2}, plain_product, 8>(2, {5, 520, 200});
    check_silent_and_mutate<few_rows_shape{.sharers = 2, .stages = 2, .early = true}, plain_product, 16>(
        2, {16, 264, 392});
    check_silent_and_mutate<few_rows_shape{.stages = 2}, gated<silu>, 8>(1, {5, 200, 200});
    check_silent_and_mutate<few_rows_shape{.sharers = 2, .stages = 2}, gated<silu>, 8>(2, {5, 200, 392});
    check_silent_and_mutate<few_rows_shape{.sharers = 2, .stages = 2}, plain_product, 64>(2, {60, 264, 200});
}
#endif
