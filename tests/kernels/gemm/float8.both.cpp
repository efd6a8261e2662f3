// The e4m3 GEMM on Hopper: accumulation in place, FP8 accumulation promotion every 128 of K, and promotion with block
// scales. Compared with float64, with scales of every kind and ragged sizes; no hazard in any schedule, every mutation
// detected. On the device a long K shows the effect of promotion.
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

// The limit of the accumulation error, as a share of the sum over k of scale * |a * b|
// (gemm_matrices::worst_in_bounds). Measured errors fit a model in which FP8 wgmma aligns the products of a K = 32 step
// and the accumulator to the largest exponent among them and truncates to 13 fraction bits (docs/lab/gemm.md). Its
// error is proportional to the magnitudes that are added and not to the result, which cancellation can make arbitrarily
// small. With the inputs of this file the model stays within 1.7e-4 promoted and 2.5e-4 in place: half of 2^-11, which
// 12 fraction bits in place would exceed. The host world accumulates the exact products in fp32.
double accumulation_error(world where) {
    return where == world::device ? 0x1p-11 : 0x1p-21;
}

struct random_scales : buffer<float> {
    random_scales(world where, std::size_t count, unsigned seed) : buffer<float>(where, count) {
        fill_random(values, seed, 0.5f, 2.0f);
    }
};

// Per-tensor scales: one for A and one for B.
template <class Out, class Mainloop, gemm_shape Shape>
void check_tensor_scales(int blocks, const gemm_case& sizes) {
    using kernel = float8_gemm<Out, epilogue::scale_by_pointer, Shape, Mainloop>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.k);
        float8_matrices<Out> matrices(where, sizes, 1);
        random_scales scales(where, 2, 7);
        const float* of_a = scales.upload();
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.upload(), {of_a, of_a + 1})}, 1}, 4);
        const double both = static_cast<double>(scales.values[0]) * scales.values[1];
        CHECK(matrices.worst_in_bounds(accumulation_error(where), [&](int, int, int, int) { return both; }) <= 1);
    }
}

// One scale per row of A and one per column of B.
template <class Mainloop, gemm_shape Shape>
void check_row_scales(int blocks, const gemm_case& sizes) {
    using tested_epilogue = epilogue::composition<epilogue::scale_rows, epilogue::scale_columns>;
    using kernel = float8_gemm<bf16, tested_epilogue, Shape, Mainloop>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        float8_matrices<bf16> matrices(where, sizes, 1);
        random_scales of_rows(where, sizes.m, 7), of_columns(where, sizes.n, 8);
        const tested_epilogue scale = epilogue::compose(epilogue::scale_rows{{of_rows.upload(), sizes.m}},
                                                        epilogue::scale_columns{{of_columns.upload(), sizes.n}});
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.upload(), scale)}, 1}, 4);
        const auto scale_at = [&](int, int row, int column, int) {
            return static_cast<double>(of_rows.values[row]) * of_columns.values[column];
        };
        CHECK(matrices.worst_in_bounds(accumulation_error(where), scale_at) <= 1);
    }
}

// Block scales: of A per row and 128 of K, of B per 128 x 128.
struct block_scales {
    int k_blocks, n_blocks, stride;  // row stride of the scales
    gemm_case sizes;
    random_scales of_a, of_b;

    block_scales(world where, const gemm_case& sizes, int gap)
        : k_blocks((sizes.k + 127) / 128),
          n_blocks((sizes.n + 127) / 128),
          stride(k_blocks + gap),
          sizes(sizes),
          of_a(where, static_cast<std::size_t>(sizes.batches) * sizes.m * stride, 7),
          of_b(where, static_cast<std::size_t>(sizes.batches) * n_blocks * stride, 8) {}

    promoted_with_block_scales upload() {
        return {{of_a.upload(), {sizes.batches, sizes.m, k_blocks}, {sizes.m * stride, stride}},
                {of_b.upload(), {sizes.batches, n_blocks, k_blocks}, {n_blocks * stride, stride}}};
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
        run<kernel>(where, {blocks}, {{kernel::describe(matrices.upload(), {}, scales.upload())}, 1}, 4);
        const auto scale_at = [&](int batch, int row, int column, int i) { return scales.at(batch, row, column, i); };
        CHECK(matrices.worst_in_bounds(accumulation_error(where), scale_at) <= 1);
    }
}

}  // namespace

TEST_CASE("e4m3 with per-tensor scales, both mainloops, every output type") {
    check_tensor_scales<bf16, accumulate_in_place, wide>(1, {200, 264, 272});
    check_tensor_scales<float, accumulate_in_place, shared_narrow>(2, {72, 136, 400});
    check_tensor_scales<bf16, promoted, shared_narrow>(2, {200, 264, 272});
    check_tensor_scales<fp16, promoted, alone>(3, {136, 136, 128});
    check_tensor_scales<float, promoted, shared_narrow>(4, {264, 136, 640});
    check_tensor_scales<e4m3, promoted, alone>(1, {64, 144, 256});
}

TEST_CASE("e4m3 with a scale per row of A and per column of B") {
    check_row_scales<accumulate_in_place, alone>(1, {136, 264, 144});
    check_row_scales<promoted, shared_narrow>(2, {200, 264, 272});
}

TEST_CASE("e4m3 with block scales of 128") {
    check_block_scales<shared_narrow>(2, {200, 264, 272}, 0);
    check_block_scales<alone>(3, {72, 136, 1152}, 3);
    check_block_scales<alone>(1, {24, 136, 2048 + 16}, 0);
    check_block_scales<shared_narrow>(2, {.m = 136, .n = 136, .k = 144, .batches = 3}, 6);
}

#if defined(__CUDACC__)
namespace {

// The relative error of a product of values around 1. All are positive, so the result is the sum of magnitudes.
template <class Mainloop>
double error_of_long_sum(int k) {
    using kernel = float8_gemm<float, epilogue::identity, shared_narrow, Mainloop>;
    float8_matrices<float> matrices(world::device, {128, 128, k}, 1);
    fill_random(matrices.a.values, 3, 0.5f, 1.5f);
    fill_random(matrices.b.values, 4, 0.5f, 1.5f);
    run<kernel>(world::device, {2}, {{kernel::describe(matrices.upload(), {})}, 1});
    return matrices.worst(as_product);
}

}  // namespace

TEST_CASE("the error of promoted accumulation does not grow with K") {
    const double exact = error_of_long_sum<promoted>(16384), fast = error_of_long_sum<accumulate_in_place>(16384);
    MESSAGE("K = 16384, values around 1: relative error promoted " << exact << ", in place " << fast);
    CHECK(exact < 5e-4);
    CHECK(fast > 100 * exact);
}
#else
TEST_CASE("the promoted mainloops have no hazard in any schedule, and every mutation is detected") {
    const gemm_case sizes{136, 136, 400};
    const auto check = [](const std::string& name, auto kernel, const auto& arguments) {
        using kernel_type = decltype(kernel);
        check_synchronisation<kernel_type>(name, {2}, arguments);
    };
    constexpr gemm_shape small{.block_n = 128, .block_k = 128, .stages = 2, .cluster = 2, .group_m = 2};
    float8_matrices<bf16> matrices(world::host, sizes, 1);
    {
        using kernel = float8_gemm<bf16, epilogue::identity, small, promoted>;
        const typename kernel::arguments arguments{{kernel::describe(matrices.upload(), {})}, 1};
        check("promoted", kernel{}, arguments);
    }
    {
        using kernel = float8_gemm<bf16, epilogue::identity, small, promoted_with_block_scales>;
        block_scales scales(world::host, sizes, 0);
        const typename kernel::arguments arguments{{kernel::describe(matrices.upload(), {}, scales.upload())}, 1};
        check("promoted with block scales", kernel{}, arguments);
    }
}
#endif
