// Quantised weights in the small-M GEMM, compared with float64 over the dequantised values: every format, group size
// and type, ragged sizes, few and many rows; argument checks of packing. No hazard in any schedule, and every mutation
// of the synchronisation is detected.
#include <imbrex/kernels/gemm/pack_weights.hpp>
#include <imbrex/kernels/gemm/quantised_weights.hpp>
#include <imbrex/kernels/gemm/small_m.hpp>

#include <kernels/gemm/random_weights.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Weights, class Out, int Rows, small_m_shape Shape = small_m_shape{}>
void check_product(int blocks, int m, int n, int k, double tolerance) {
    using kernel = gemm_small_m<Weights, Out, tested_epilogue<Weights>, Rows, Shape>;
    check_quantised_product<Weights, kernel, Out>({blocks}, 4, m, n, k, tolerance);
}

constexpr double exact = 1e-6, rounded_to_bf16 = 5e-3;

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("small-M GEMM: grouped int4, every size", In, small_m_of_int4) {
    check_product<int4_weights<In, 128, In, 128>, float, 8>(3, 1, 200, 384, exact);
    check_product<int4_weights<In, 64, In, 64>, float, 16>(2, 13, 136, 320, exact);
    check_product<int4_weights<In, 32, In, 128>, float, 8>(2, 5, 72, 288, exact);
    check_product<int4_weights<In, 128, float, 512>, In, 16>(4, 16, 264, 640, rounded_to_bf16);
    check_product<int4_weights<In, 32, fp16>, float, 32>(1, 32, 64, 544, exact);
}
TEST_CASE_TEMPLATE_INVOKE(small_m_of_int4, bf16);
#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE_TEMPLATE_INVOKE(small_m_of_int4, fp16);
#endif

TEST_CASE_TEMPLATE("small-M GEMM: int8 with a scale per row or per group", In, bf16, fp16) {
    check_product<int8_weights<In, 128>, float, 8>(3, 1, 200, 392, exact);
    check_product<int8_weights<In, 64>, In, 16>(2, 16, 136, 72, rounded_to_bf16);
    check_product<grouped_weights<In, std::int8_t, 128>, float, 8>(2, 7, 136, 384, exact);
    check_product<grouped_weights<In, std::int8_t, 32, float, 64>, float, 16>(2, 9, 72, 160, exact);
}

TEST_CASE_TEMPLATE_DEFINE("MXFP4", In, small_m_of_mxfp4) {
    check_product<mxfp4_weights<In, 128>, float, 8>(3, 1, 200, 416, exact);
    check_product<mxfp4_weights<In, 512>, In, 16>(2, 16, 136, 544, rounded_to_bf16);
    check_product<mxfp4_weights<In, 64>, float, 32>(2, 17, 72, 96, exact);
}
TEST_CASE_TEMPLATE_INVOKE(small_m_of_mxfp4, bf16);
#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE_TEMPLATE_INVOKE(small_m_of_mxfp4, fp16);
#endif

TEST_CASE("small-M GEMM: quantised weights with many rows and cluster split-K") {
    check_product<int4_weights<bf16>, float, 64>(2, 60, 136, 256, exact);
    check_product<int8_weights<bf16, 128>, float, 64>(2, 33, 136, 200, exact);
    check_product<mxfp4_weights<bf16, 128>, float, 64>(2, 60, 136, 160, exact);
    check_product<mxfp4_weights<bf16>, float, 8, small_m_shape{.cluster_size = 2}>(4, 4, 264, 416, exact);
    check_product<int4_weights<bf16>, float, 8, small_m_shape{.cluster_size = 2}>(2, 4, 136, 384, exact);
}

TEST_CASE("packed scales round-trip") {
    using weights = int4_weights<bf16, 128, bf16, 128>;
    const random_weights<weights> given(100, 256, 3);
    const auto packed = pack_weights<weights>(given.values.data(), given.scales.data(), 100, 256);
    REQUIRE(packed.size() == 4);
    const auto scale_at = [&](int row, int group) { return given.scales[row * 2 + group].bits; };
    CHECK(packed[1].scales[0].storage[packed_row_offset(5)].bits == scale_at(5, 1));
    CHECK(packed[2].scales[0].storage[packed_row_offset(35)].bits == scale_at(99, 0));
    CHECK(packed[3].scales[0].storage[packed_row_offset(36)].bits == 0);
}

TEST_CASE("pack_weights rejects invalid arguments") {
    using weights = int4_weights<bf16>;
    const random_weights<weights> good(64, 128, 3);
    const auto* values = good.values.data();
    const auto* scales = good.scales.data();
    const auto pack = [](auto... arguments) { return error_message_of([&] { pack_weights<weights>(arguments...); }); };
    CHECK(pack(values, scales, 0, 128) == "rows: 0; there must be a row of weights");
    CHECK(pack(values, scales, 64, 0) == "k: 0; k must be positive");
    CHECK(pack(values, scales, 64, 192) == "k: 192; k must be a positive multiple of the group size, 128");
    CHECK(pack(static_cast<const int4x2*>(nullptr), scales, 64, 128) == "values: null; weights of 64 x 128 are needed");
    CHECK(pack(values, static_cast<const bf16*>(nullptr), 64, 128) ==
          "scales: null; there must be one for each row and 128 of K");
    CHECK(pack(static_cast<weights::weight_tile*>(nullptr), values, scales, 64, 128) ==
          "to: null; there must be memory for 1 tiles");

    random_weights<mxfp4_weights<bf16>> floats(64, 64, 3);
    floats.scales[3] = ue8m0(4.0f);
    const auto pack_floats = [&] {
        return error_message_of(
            [&] { pack_weights<mxfp4_weights<bf16>>(floats.values.data(), floats.scales.data(), 64, 64); });
    };
    CHECK(pack_floats() == "scales: 2^2 in row 1 of a tile; scales of 4-bit floats are at most 2");

    const std::vector<weights::weight_tile> part(1);
    CHECK(error_message_of([&] { weights::describe(nullptr, 64, 128); }) ==
          "tiles: null; packed weights of 64 x 128 are needed");
    CHECK(error_message_of([&] { weights::describe(part.data(), 0, 128); }) ==
          "rows: 0; there must be a row of weights");
    CHECK(error_message_of([&] { weights::describe(part.data(), 64, -1); }) == "k: -1; k must be positive");
}

#if !defined(__CUDACC__)
namespace {

template <class Weights, int Rows>
void check_silent_and_mutate(const char* name) {
    using kernel = gemm_small_m<Weights, bf16, epilogue::identity, Rows, small_m_shape{.cluster_size = 2, .stages = 2}>;
    launch_of<Weights, kernel, bf16> one(world::host, 5, 456, 512);
    const auto arguments = one.arguments(epilogue::identity{});
    check_synchronisation<kernel>(name, {4}, arguments);
}

}  // namespace

TEST_CASE("small-M GEMM with quantised weights: no hazard in any schedule, and every mutation is detected") {
    check_silent_and_mutate<int4_weights<bf16, 64, bf16, 128>, 8>("int4");
    check_silent_and_mutate<int4_weights<bf16, 64, bf16, 128>, 32>("int4, 32 rows");
    check_silent_and_mutate<mxfp4_weights<bf16, 128>, 8>("MXFP4");
    check_silent_and_mutate<mxfp4_weights<bf16, 128>, 32>("MXFP4, 32 rows");
    check_silent_and_mutate<int8_weights<bf16, 128>, 8>("int8");
}
#endif
