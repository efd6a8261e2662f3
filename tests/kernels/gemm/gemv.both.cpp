// The GEMV with quantised weights compared with float64 over the dequantised values: every format, group size and type,
// few and many columns, cluster split-K, GLU; argument checks. No hazard in any schedule, and every mutation of the
// synchronisation is detected.
#include <imbrex/kernels/gemm/gemv.hpp>
#include <imbrex/kernels/gemm/pack_weights.hpp>

#include <kernels/gemm/random_weights.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class Weights, class Out, int Rows, gemv_shape Shape = gemv_shape{}>
void check_product(int m, int n, int k, double tolerance) {
    using kernel = gemv_kernel<Weights, Out, tested_epilogue<Weights>, Rows, Shape>;
    check_quantised_product<Weights, kernel, Out>({kernel::blocks_of(n, 4)}, 4, m, n, k, tolerance);
}

constexpr double exact = 1e-6, rounded_to_bf16 = 5e-3;
constexpr gemv_shape shared_by_two{.cluster_size = 2};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("GEMV: grouped int4, every size", In, gemv_of_int4) {
    check_product<int4_weights<In, 128, In, 128>, float, 8>(1, 200, 384, exact);
    check_product<int4_weights<In, 64, In, 64>, float, 16>(13, 136, 1088, exact);
    check_product<int4_weights<In, 32, In, 128>, float, 8, shared_by_two>(5, 72, 288, exact);
    check_product<int4_weights<In, 128, float, 512>, In, 16, shared_by_two>(16, 264, 640, rounded_to_bf16);
    check_product<int4_weights<In, 32, fp16>, float, 16>(16, 64, 3104, exact);
    check_product<int4_weights<In, 128, In, 512>, float, 16, gemv_shape{.cluster_size = 4}>(16, 256, 8192, exact);
}
TEST_CASE_TEMPLATE_INVOKE(gemv_of_int4, bf16);
#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE_TEMPLATE_INVOKE(gemv_of_int4, fp16);
#endif

TEST_CASE_TEMPLATE("GEMV: int8 with a scale per row or per group, and levels", In, bf16, fp16) {
    check_product<int8_weights<In, 128>, float, 8>(1, 200, 392, exact);
    check_product<int8_weights<In, 64>, In, 16>(16, 136, 72, rounded_to_bf16);
    check_product<grouped_weights<In, std::int8_t, 128>, float, 8>(7, 136, 1408, exact);
    check_product<grouped_weights<In, iq4, 32, fp16, 128>, float, 8>(7, 136, 1408, exact);
    check_product<grouped_weights<In, std::int8_t, 32, float, 64>, float, 16, gemv_shape{.cluster_size = 2}>(9, 72, 160,
                                                                                                             exact);
}

TEST_CASE_TEMPLATE_DEFINE("GEMV: MXFP4", In, gemv_of_mxfp4) {
    check_product<mxfp4_weights<In, 128>, float, 8>(1, 200, 416, exact);
    check_product<mxfp4_weights<In, 512>, In, 16, shared_by_two>(16, 136, 544, rounded_to_bf16);
    check_product<mxfp4_weights<In, 64>, float, 16, gemv_shape{.cluster_size = 4}>(11, 72, 2144, exact);
    check_product<mxfp4_weights<In, 64>, float, 8, gemv_shape{.warps = 4}>(8, 130, 1184, exact);
    check_product<mxfp4_weights<In, 512>, float, 16>(16, 264, 4096, exact);  // K steps are staggered between blocks
}
TEST_CASE_TEMPLATE_INVOKE(gemv_of_mxfp4, bf16);
#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE_TEMPLATE_INVOKE(gemv_of_mxfp4, fp16);
#endif

TEST_CASE("GEMV: GLU") {
    using weights = int4_weights<bf16, 64, bf16, 128>;
    using kernel = gemv_kernel<weights, float, epilogue::swiglu, 8, shared_by_two>;
    const int m = 3, n = 128, k = 320;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        launch_of<weights, kernel, float> one(where, m, n, k, 2);
        run<kernel>(where, {kernel::blocks_of(n, 4)}, one.arguments(epilogue::swiglu{}), 4);
        one.out.download();
        double worst = 0;
        for (int row = 0; row < m; ++row) {
            for (int column = 0; column < n; ++column) {
                double gate = 0, up = 0;
                for (int i = 0; i < k; ++i) {
                    const double x = static_cast<float>(one.a.values[row * k + i]);
                    gate += x * one.weights.at(column, i);
                    up += x * one.weights.at(n + column, i);
                }
                const double expected = gate / (1 + std::exp(-gate)) * up;
                const double error = std::abs(one.out.values[row * n + column] - expected);
                worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
            }
        }
        CHECK(worst <= 1e-4);
    }
}

TEST_CASE("GEMV: rejects invalid arguments") {
    using weights = int4_weights<bf16, 64, bf16, 128>;
    using kernel = gemv_kernel<weights, float, epilogue::identity, 8>;
    using gated_kernel = gemv_kernel<weights, float, epilogue::swiglu, 8, shared_by_two>;
    std::vector<bf16> a(16 * 64);
    std::vector<float> out(16 * 72);
    const std::vector<weights::weight_tile> part(3);
    const auto packed = weights::describe(part.data(), 144, 64);
    const auto refusal = [&](int m, int n, int batches) {
        gemm_problem<bf16, float> p{m, n, 64, {a.data()}, {}, {out.data()}};
        p.batches = batches;
        return error_message_of([&] { kernel::describe(p, packed, {}); });
    };
    CHECK(refusal(0, 64, 1) == "m: 0; this kernel takes 1 to 8 rows");
    CHECK(refusal(9, 64, 1) == "m: 9; this kernel takes 1 to 8 rows");
    CHECK(refusal(1, 0, 1) == "n: 0; there must be a column");
    CHECK(refusal(1, 64, 2) == "batches: 2; this kernel takes one product");
    const gemm_problem<bf16, float> odd{1, 72, 64, {a.data()}, {}, {out.data()}};
    CHECK(error_message_of([&] { gated_kernel::describe(odd, packed, {}); }) ==
          "n: 72; gate and up must be a multiple of 64 columns each");
}

#if !defined(__CUDACC__)
namespace {

template <class Weights, int Rows, gemv_shape Shape>
void check_silent_and_mutate(const char* name) {
    using kernel = gemv_kernel<Weights, bf16, epilogue::identity, Rows, Shape>;
    launch_of<Weights, kernel, bf16> one(world::host, 5, 136, 64 * 32);  // long enough to reuse the ring buffers
    const auto arguments = one.arguments(epilogue::identity{});
    check_synchronisation<kernel>(name, {kernel::blocks_of(136, 2)}, arguments);
}

}  // namespace

TEST_CASE("GEMV: no hazard in any schedule, and every mutation is detected") {
    constexpr gemv_shape small{.cluster_size = 2, .warps = 4, .stages = 3};
    constexpr gemv_shape alone{.warps = 4, .stages = 2};
    check_silent_and_mutate<int4_weights<bf16, 64, bf16, 128>, 8, small>("int4");
    check_silent_and_mutate<mxfp4_weights<bf16, 128>, 16, small>("MXFP4");
    check_silent_and_mutate<int8_weights<bf16, 128>, 8, alone>("int8, alone");
}
#endif
