// Random int8 and e4m3 GEMMs through the launcher.
#include "kernels/gemm/random_cases.hpp"

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;

}  // namespace

TEST_CASE("random GEMMs: int8 to int32, exact") {
    check_random_cases<std::int8_t, std::int32_t, row_major, column_major, epilogue::identity>(
        600, 60, 60, 0, [](world, const gemm_case&) { return epilogue::identity{}; }, as_product);
}

TEST_CASE("random GEMMs: int8 to bf16 with row and column scales") {
    std::vector<float> scales(4096);
    fill_random(scales, 9, 0.001f, 0.002f);
    std::vector<std::unique_ptr<buffer<float>>> alive;
    check_random_cases<std::int8_t, bf16, row_major, column_major,
                       epilogue::composition<epilogue::scale_rows, epilogue::scale_columns>>(
        700, 60, 60, 0.005,
        [&](world where, const gemm_case& sizes) {
            alive.push_back(std::make_unique<buffer<float>>(where, scales.size()));
            alive.back()->values = scales;
            const float* there = alive.back()->upload();
            return epilogue::compose(epilogue::scale_rows{{there, sizes.m}}, epilogue::scale_columns{{there, sizes.n}});
        },
        [&](double x, double, int, int row, int column) { return x * scales[row] * scales[column]; });
}

TEST_CASE("promoted e4m3 GEMMs; rejects strides that TMA cannot read") {
    using product = gemm<e4m3, bf16, gemm_options{.b = column_major}, epilogue::scale>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const gemm_case& sizes :
             {gemm_case{1, 48, 16}, gemm_case{200, 264, 272}, gemm_case{.m = 33, .n = 130, .k = 128, .batches = 3}}) {
            CAPTURE(sizes.m);
            gemm_matrices<e4m3, bf16, row_major, column_major, false> matrices(where, sizes, 1);
            product::launch(where, matrices.upload(), epilogue::scale{0.5f});
            // FP8 wgmma truncates products relative to the largest one of a K = 32 step, so the error is proportional
            // to the sum of magnitudes and not to the result (kernels/gemm/float8.both.cpp).
            const double accumulation_error = where == world::device ? 0x1p-11 : 0x1p-21;
            CHECK(matrices.worst_in_bounds(accumulation_error, [](int, int, int, int) { return 0.5; }) <= 1);
        }
        gemm_matrices<e4m3, bf16, row_major, column_major, false> ragged(where, {8, 16, 24}, 1);
        CHECK(error_message_of([&] { product::launch(where, ragged.upload(), epilogue::scale{1}); }) ==
              "m, n, k: 8, 16, 24 with rows of A 24 and of B 24 elements apart; e4m3 requires Hopper, k of at least 1 "
              "and row strides that are multiples of 16");
    }
}
