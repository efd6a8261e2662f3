// Weights in blocks with two levels of scales, compared with float64: the GEMV, the small-M GEMM, dequantisation (bit
// for bit) and the launcher, with every format, ragged rows and GLU; argument checks. No hazard in any schedule, and
// every mutation of the synchronisation is detected.
#include <imbrex/kernels/gemm_quantised.hpp>

#include <kernels/gemm/random_blocks.hpp>

#include "synchronisation.hpp"
#include "worlds.hpp"

#include <cmath>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr double exact = 1e-6, rounded_to_bf16 = 5e-3;

template <class Weights, class Out, int Rows, gemv_shape Shape = gemv_shape{}>
void check_gemv(int m, int n, int k, double tolerance) {
    using kernel = gemv_kernel<Weights, Out, epilogue::identity, Rows, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(k);
        block_launch<Weights, Out> one(where, m, n, k);
        const auto packed = Weights::describe(one.tiles.upload(), n, k);
        run<kernel>(where, {kernel::blocks_of(n, 4)}, kernel::describe(one.problem(), packed, {}), 4);
        one.out.download();
        CHECK(one.worst_error() <= tolerance);
    }
}

template <class Weights, int Rows>
void check_small_m(int m, int n, int k) {
    using kernel = gemm_small_m<Weights, float, epilogue::identity, Rows>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(m);
        CAPTURE(k);
        block_launch<Weights, float> one(where, m, n, k);
        const auto packed = Weights::describe(one.tiles.upload(), n, k);
        run<kernel>(where, {2}, kernel::describe(one.problem(), packed, {}), 4);
        one.out.download();
        CHECK(one.worst_error() <= exact);
    }
}

template <class Weights>
void check_dequantised(int rows, int k) {
    using element = typename Weights::element;
    const random_blocks<Weights> given(rows, k, 11);
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        buffer<typename Weights::weight_tile> tiles(where, packed_tile_count<Weights>(rows, k));
        tiles.values = given.packed();
        buffer<element> out(where, static_cast<std::size_t>(rows) * k, convert<element>(NAN));
        dequantise_weights<Weights>::launch(where, rows, k, tiles.upload(), out.upload());
        out.download();
        int wrong = 0;
        for (int row = 0; row < rows; ++row) {
            for (int column = 0; column < k; ++column) {
                const auto expected = convert<element>(static_cast<float>(given.at(row, column)));
                wrong += out.values[static_cast<std::size_t>(row) * k + column].bits != expected.bits;
            }
        }
        CHECK(wrong == 0);
    }
}

using q4_k = q4_k_weights<bf16>;
using q5_k = q5_k_weights<bf16>;
using q6_k = q6_k_weights<bf16>;
using q2_k = q2_k_weights<bf16>;
using q5_1 = q5_1_weights<bf16>;

}  // namespace

TEST_CASE("GEMV: weights in blocks") {
    check_gemv<q4_k, float, 8>(1, 200, 768, exact);
    check_gemv<q4_k_weights<fp16>, fp16, 16, gemv_shape{.cluster_size = 2}>(13, 72, 2304, rounded_to_bf16);
    check_gemv<q5_k_weights<fp16>, float, 8>(5, 136, 1280, exact);
    check_gemv<q6_k, float, 8, gemv_shape{.cluster_size = 2}>(3, 200, 2304, exact);
    check_gemv<q6_k_weights<fp16>, float, 16>(16, 64, 512, exact);
}

TEST_CASE("small-M GEMM: weights in blocks") {
    check_small_m<q4_k_weights<fp16>, 32>(25, 136, 768);
    check_small_m<q5_k, 8>(5, 72, 512);
    check_small_m<q6_k_weights<fp16>, 32>(32, 200, 512);
}

TEST_CASE_TEMPLATE("weights in blocks are dequantised and rounded once", In, bf16, fp16) {
    check_dequantised<q4_k_weights<In>>(200, 512);
    check_dequantised<q5_k_weights<In>>(64, 256);
    check_dequantised<q6_k_weights<In>>(65, 768);
    check_dequantised<q2_k_weights<In>>(70, 512);
    check_dequantised<q5_1_weights<In>>(65, 448);
}

TEST_CASE_TEMPLATE_DEFINE("gemm_quantised: weights in blocks, any number of rows", Weights, launched_blocks) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int m : {1, 9, 40}) {
            CAPTURE(m);
            block_launch<Weights, float> one(where, m, 72, 2 * Weights::super_block);
            gemm_quantised<Weights, float>::launch(where, one.problem(), one.tiles.upload());
            one.out.download();
            CHECK(one.worst_error() <= exact);
        }
        for (const int m : {40, fused_dequantisation_max_m + 1}) {
            CAPTURE(m);
            const int n = m > 40 ? 8 : 72;
            block_launch<Weights, bf16> one(where, m, n, 256);
            buffer<bf16> room(where, n * 256, convert<bf16>(NAN));
            const gemm_workspace workspace{room.upload(), room.values.size() * sizeof(bf16)};
            gemm_quantised<Weights, bf16>::launch(where, one.problem(), one.tiles.upload(), workspace);
            one.out.download();
            CHECK(one.worst_error() <= rounded_to_bf16);
        }
    }
}

TEST_CASE_TEMPLATE_INVOKE(launched_blocks, q4_k, q5_1);
#if !defined(IMBREX_FEW_SHAPES)  // the launcher has many kernels for each format
TEST_CASE_TEMPLATE_INVOKE(launched_blocks, q5_k, q6_k, q2_k);
#endif

TEST_CASE_TEMPLATE("gemm_quantised: weights in blocks with GLU", Weights, q4_k, q6_k) {
    using product = gemm_quantised<Weights, float, epilogue::glu<activation::relu>>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const int m : {3, 11}) {
            CAPTURE(m);
            block_launch<Weights, float> one(where, m, 64, 512, 2);
            product::launch(where, one.problem(), one.tiles.upload());
            one.out.download();
            double worst = 0;
            for (int row = 0; row < m; ++row) {
                for (int column = 0; column < 64; ++column) {
                    const auto gate = one.product(row, column), up = one.product(row, 64 + column);
                    const double error =
                        std::abs(std::max(gate.value, 0.0) * up.value - one.out.values[row * 64 + column]) /
                        (gate.magnitude * up.magnitude);
                    worst = error <= worst ? worst : std::isnan(error) ? INFINITY : error;
                }
            }
            CHECK(worst <= exact);
        }
    }
}

TEST_CASE("pack_weights rejects invalid blocks") {
    const random_blocks<q4_k> good(64, 256, 3);
    std::vector<q4_k::weight_tile> tiles(1);
    const auto pack = [&](q4_k::weight_tile* to, const q4_k::format* values, int rows, int k) {
        return error_message_of(
            [&] { pack_weights<q4_k>(to, values, good.scales.data(), good.supers.data(), rows, k); });
    };
    const auto* values = good.values.data();
    CHECK(pack(tiles.data(), values, 64, 256) == "no error");
    CHECK(pack(tiles.data(), values, 0, 256) == "rows: 0; there must be a row of weights");
    CHECK(pack(tiles.data(), values, 64, 320) == "k: 320; k must be a positive multiple of the super-block, 256");
    CHECK(pack(nullptr, values, 64, 256) == "to: null; there must be memory for 1 tiles");
    CHECK(pack(tiles.data(), nullptr, 64, 256) ==
          "values, scales, supers: one is null; weights of 64 x 256 have all three");
}

#if !defined(__CUDACC__)
namespace {

template <class Weights, int Rows>
void check_silent_and_mutate(const char* name) {
    using kernel = gemv_kernel<Weights, bf16, epilogue::identity, Rows, gemv_shape{.warps = 4, .stages = 3}>;
    block_launch<Weights, bf16> one(world::host, 5, 72, 2048);  // long enough to reuse the ring buffers
    const auto packed = Weights::describe(one.tiles.upload(), 72, 2048);
    check_synchronisation<kernel>(name, {kernel::blocks_of(72, 2)}, kernel::describe(one.problem(), packed, {}), 300);
}

}  // namespace

TEST_CASE("weights in blocks: no hazard in any schedule, and every mutation is detected") {
    check_silent_and_mutate<q4_k, 8>("GEMV, Q4_K");
    check_silent_and_mutate<q6_k, 16>("GEMV, Q6_K");
    using kernel = gemm_small_m<q4_k, bf16, epilogue::identity, 8, small_m_shape{.stages = 2}>;
    block_launch<q4_k, bf16> one(world::host, 5, 456, 512);  // several tiles per block
    const auto packed = q4_k::describe(one.tiles.upload(), 456, 512);
    check_synchronisation<kernel>("small-M GEMM, Q4_K", {2}, kernel::describe(one.problem(), packed, {}), 300);
}
#endif
