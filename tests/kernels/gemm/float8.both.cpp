// The e4m3 GEMM on Hopper: sums kept by the tensor cores, sums promoted every 128 of k, and sums promoted with scales of
// blocks. Against double, with scales of every kind and ragged sizes; checked over many schedules, and every mutant reported.
// On the device, a long K shows what promotion is for.
#include <imbrex/kernels/gemm/hopper.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr gemm_shape wide{.block_n = 256, .block_k = 128, .stages = 3, .cluster = 1, .group_m = 2};
constexpr gemm_shape shared_narrow{.block_n = 128, .block_k = 128, .stages = 3, .cluster = 2, .group_m = 2};
constexpr gemm_shape alone{.block_n = 128, .block_k = 128, .stages = 2, .cluster = 1, .group_m = 2};

template <class Out, class Epilogue, gemm_shape Shape, class Mainloop>
using float8_gemm =
    gemm_hopper<e4m3, Out, Epilogue, matrix_layout::row_major, matrix_layout::column_major, Shape, Mainloop>;

template <class Out>
using float8_matrices = gemm_matrices<e4m3, Out, matrix_layout::row_major, matrix_layout::column_major, false>;

// The tensor cores keep about 14 bits of a sum of e4m3 products, also of 128; the host world keeps all that fp32 has.
double tolerance_of(world where, double rounding) {
    return where == world::device ? 0.015 + rounding : rounding;
}

struct random_scales : buffer<float> {
    random_scales(world where, std::size_t count, unsigned seed) : buffer<float>(where, count) {
        fill_random(values, seed, 0.5f, 2.0f);
    }
};

// One scale for A and one for B.
template <class Out, class Mainloop, gemm_shape Shape>
void check_tensor_scales(int blocks, const gemm_case& sizes, double tolerance) {
    using kernel = float8_gemm<Out, epilogue::scale_by_pointer, Shape, Mainloop>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.k);
        float8_matrices<Out> matrices(where, sizes, 1);
        random_scales scales(where, 2, 7);
        const float* of_a = scales.send();
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.send(), {of_a, of_a + 1})}, 1}, 4);
        const double both = static_cast<double>(scales.values[0]) * scales.values[1];
        CHECK(matrices.worst([&](double product, double, int, int, int) { return product * both; }) <=
              tolerance_of(where, tolerance));
    }
}

// One for each row of A and one for each column of B.
template <class Mainloop, gemm_shape Shape>
void check_row_scales(int blocks, const gemm_case& sizes, double tolerance) {
    using tested_epilogue = epilogue::composition<epilogue::scale_rows, epilogue::scale_columns>;
    using kernel = float8_gemm<bf16, tested_epilogue, Shape, Mainloop>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        float8_matrices<bf16> matrices(where, sizes, 1);
        random_scales of_rows(where, sizes.m, 7), of_columns(where, sizes.n, 8);
        const tested_epilogue scale = epilogue::compose(epilogue::scale_rows{{of_rows.send(), sizes.m}},
                                                        epilogue::scale_columns{{of_columns.send(), sizes.n}});
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.send(), scale)}, 1}, 4);
        const auto expected = [&](double product, double, int, int row, int column) {
            return product * of_rows.values[row] * of_columns.values[column];
        };
        CHECK(matrices.worst(expected) <= tolerance_of(where, tolerance));
    }
}

// Scales of A for each row and 128 of k, of B for each 128 x 128.
struct block_scales {
    int k_blocks, n_blocks, stride;  // of their rows
    gemm_case sizes;
    random_scales of_a, of_b;

    block_scales(world where, const gemm_case& sizes, int gap)
        : k_blocks((sizes.k + 127) / 128),
          n_blocks((sizes.n + 127) / 128),
          stride(k_blocks + gap),
          sizes(sizes),
          of_a(where, static_cast<std::size_t>(sizes.batches) * sizes.m * stride, 7),
          of_b(where, static_cast<std::size_t>(sizes.batches) * n_blocks * stride, 8) {}

    promoted_with_block_scales send() {
        return {{of_a.send(), {sizes.batches, sizes.m, k_blocks}, {sizes.m * stride, stride}},
                {of_b.send(), {sizes.batches, n_blocks, k_blocks}, {n_blocks * stride, stride}}};
    }
    double at(int batch, int row, int column, int i) const {
        const double a = of_a.values[(batch * sizes.m + row) * stride + i / 128];
        return a * of_b.values[(batch * n_blocks + column / 128) * stride + i / 128];
    }
};

template <gemm_shape Shape>
void check_block_scales(int blocks, const gemm_case& sizes, int gap) {
    using kernel = float8_gemm<float, epilogue::identity, Shape, promoted_with_block_scales>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.k);
        float8_matrices<float> matrices(where, sizes, 1);
        block_scales scales(where, sizes, gap);
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.send(), {}, scales.send())}, 1}, 4);
        const auto expected = [&](double, double, int batch, int row, int column) {
            double sum = 0;
            for (int i = 0; i < sizes.k; ++i) {
                sum +=
                    matrices.a_at(batch, row, i) * matrices.b_at(batch, i, column) * scales.at(batch, row, column, i);
            }
            return sum;
        };
        CHECK(matrices.worst(expected) <= tolerance_of(where, 1e-5));
    }
}

}  // namespace

TEST_CASE("e4m3 with one scale for each operand, both ways of summing, every type of result") {
    check_tensor_scales<bf16, accumulate_in_place, wide>(1, {200, 264, 272}, 0.01);
    check_tensor_scales<float, accumulate_in_place, shared_narrow>(2, {72, 136, 400}, 1e-5);
    check_tensor_scales<bf16, promoted, shared_narrow>(2, {200, 264, 272}, 0.01);
    check_tensor_scales<fp16, promoted, alone>(3, {136, 136, 128}, 2e-3);
    check_tensor_scales<float, promoted, shared_narrow>(4, {264, 136, 640}, 1e-5);
    check_tensor_scales<e4m3, promoted, alone>(1, {64, 144, 256}, 0.07);
}

TEST_CASE("e4m3 with a scale for each row of A and each column of B") {
    check_row_scales<accumulate_in_place, alone>(1, {136, 264, 144}, 0.01);
    check_row_scales<promoted, shared_narrow>(2, {200, 264, 272}, 0.01);
}

TEST_CASE("e4m3 with scales for blocks of 128") {
    check_block_scales<shared_narrow>(2, {200, 264, 272}, 0);
    check_block_scales<alone>(3, {72, 136, 1152}, 3);
    check_block_scales<alone>(1, {24, 136, 2048 + 16}, 0);
    check_block_scales<shared_narrow>(2, {.m = 136, .n = 136, .k = 144, .batches = 3}, 6);
}

#if defined(__CUDACC__)
namespace {

// The error of a product of numbers around 1, in parts of the result.
template <class Mainloop>
double error_of_long_sum(int k) {
    using kernel = float8_gemm<float, epilogue::identity, shared_narrow, Mainloop>;
    float8_matrices<float> matrices(world::device, {128, 128, k}, 1);
    fill_random(matrices.a.values, 3, 0.5f, 1.5f);
    fill_random(matrices.b.values, 4, 0.5f, 1.5f);
    run<kernel>(world::device, {2}, {{kernel::describe(matrices.send(), {})}, 1});
    return matrices.worst(as_product);
}

}  // namespace

TEST_CASE("a long K loses nothing where sums are promoted") {
    const double exact = error_of_long_sum<promoted>(16384), fast = error_of_long_sum<accumulate_in_place>(16384);
    MESSAGE("K = 16384, numbers around 1: relative error promoted " << exact << ", by the tensor cores alone " << fast);
    CHECK(exact < 5e-4);
    CHECK(fast > 100 * exact);
}
#else
TEST_CASE("the promoted loops are silent over 1,000 schedules, and each of their mutants is told") {
    const gemm_case sizes{136, 136, 400};
    const auto check = [](const std::string& name, auto kernel, const auto& arguments) {
        using kernel_type = decltype(kernel);
        check_synchronisation<kernel_type>(name, {2}, arguments);
    };
    constexpr gemm_shape small{.block_n = 128, .block_k = 128, .stages = 2, .cluster = 2, .group_m = 2};
    float8_matrices<bf16> matrices(world::host, sizes, 1);
    {
        using kernel = float8_gemm<bf16, epilogue::identity, small, promoted>;
        const typename kernel::arguments arguments{{kernel::describe(matrices.send(), {})}, 1};
        check("promoted", kernel{}, arguments);
    }
    {
        using kernel = float8_gemm<bf16, epilogue::identity, small, promoted_with_block_scales>;
        block_scales scales(world::host, sizes, 0);
        const typename kernel::arguments arguments{{kernel::describe(matrices.send(), {}, scales.send())}, 1};
        check("promoted with block scales", kernel{}, arguments);
    }
}
#endif
