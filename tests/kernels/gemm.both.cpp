// The GEMM launcher: kernel selection, argument checks, empty problems, grouped GEMM, and CUDA graph capture.
#include <imbrex/kernels/gemm.hpp>

#include "kernels/gemm/reference.hpp"
#include "synchronisation.hpp"

#include <memory>
#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr matrix_layout row_major = matrix_layout::row_major, column_major = matrix_layout::column_major;
using product = gemm<bf16, bf16, gemm_options{.b = column_major}>;
using matrices = gemm_matrices<bf16, bf16, row_major, column_major, false>;

}  // namespace

#if !defined(__CUDACC__)
TEST_CASE("selects a kernel from the sizes") {
    const auto chosen = [](int m, int n, int k, bool hopper = true, bool tma_can_read = true) {
        return choose_gemm_kernel({m, n, k, 1, 132, hopper, tma_can_read, true, true});
    };
    CHECK(chosen(1, 8192, 8192) == gemm_kernel_kind::small_m_16);
    CHECK(chosen(16, 8192, 8192) == gemm_kernel_kind::small_m_16);
    CHECK(chosen(17, 8192, 8192) == gemm_kernel_kind::small_m_64);
    CHECK(chosen(64, 8192, 8192) == gemm_kernel_kind::small_m_64);
    CHECK(chosen(65, 8192, 8192) == gemm_kernel_kind::cluster_split_k);
    CHECK(chosen(128, 8192, 8192) == gemm_kernel_kind::cluster_split_k);
    CHECK(chosen(8192, 8192, 8192) == gemm_kernel_kind::hopper_wide_tile);
    CHECK(chosen(512, 1024, 8192) == gemm_kernel_kind::hopper_narrow_tile);
    CHECK(chosen(8192, 8192, 8192, false) == gemm_kernel_kind::ampere_class);
    CHECK(chosen(8192, 8192, 8192, true, false) == gemm_kernel_kind::ampere_class);
    CHECK(chosen(8192, 8192, 0) == gemm_kernel_kind::ampere_class);
    // A kernel is never chosen for a problem it does not support.
    CHECK(choose_gemm_kernel({1, 8192, 8192, 4, 132, true, true, true, true}) == gemm_kernel_kind::hopper_wide_tile);
    CHECK(choose_gemm_kernel({1, 8192, 8192, 1, 132, true, true, false, true}) == gemm_kernel_kind::hopper_narrow_tile);
    CHECK(choose_gemm_kernel({512, 1024, 8192, 1, 132, true, true, true, false}) == gemm_kernel_kind::hopper_wide_tile);
}
#endif

TEST_CASE("rejects invalid arguments and writes nothing") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        matrices given(where, {40, 48, 64}, 1);
        const gemm_problem<bf16, bf16> good = given.upload();
        const auto refused = [&](auto change) {
            gemm_problem<bf16, bf16> bad = good;
            change(bad);
            return error_message_of([&] { product::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.m = -1; }) == "m: -1; the number of rows must not be negative");
        CHECK(refused([](auto& p) { p.n = -3; }) == "n: -3; the number of columns must not be negative");
        CHECK(refused([](auto& p) { p.k = -2; }) == "k: -2; k must not be negative");
        CHECK(refused([](auto& p) { p.batches = -1; }) == "batches: -1; the number of products must not be negative");
        CHECK(refused([](auto& p) { p.a.pointer = nullptr; }) == "a.pointer: null; a matrix of 40 x 64 is needed");
        CHECK(refused([](auto& p) { p.b.pointer = nullptr; }) == "b.pointer: null; a matrix of 48 x 64 is needed");
        CHECK(refused([](auto& p) { p.out.pointer = nullptr; }) == "out.pointer: null; a matrix of 40 x 48 is needed");
        CHECK(refused([](auto& p) { p.a.stride = 63; }) == "a.stride: 63; must be 0 (packed) or at least 64");
        CHECK(refused([](auto& p) { p.b.batch_stride = -8; }) == "b.batch_stride: -8; it must not be negative");
        CHECK(refused([](auto& p) { p.batches = 2, p.out.batch_stride = 0; }) ==
              "out.batch_stride: 0; must be positive: 2 batches cannot share one output");
        CHECK(error_message_of([&] { product::launch_grouped(where, {good}, {}); }) ==
              "epilogues: 0; there must be one for each of 1 problems");
        given.out.download();
        for (const bf16 value : given.out.values) REQUIRE(std::isnan(static_cast<float>(value)));
    }
}

TEST_CASE("empty problems do nothing; K = 0 gives the epilogue of zero") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const gemm_case& sizes : {gemm_case{0, 48, 64}, gemm_case{40, 0, 64}}) {
            matrices given(where, sizes, 1);
            product::launch(where, given.upload());
        }
        gemm_matrices<bf16, float, row_major, row_major, false> nothing(where, {40, 33, 0}, 1);
        gemm<bf16, float>::launch(where, nothing.upload());
        CHECK(nothing.worst(as_product) == 0);
    }
}

TEST_CASE("grouped GEMM: more problems than fit one launch, some of which TMA cannot read") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        std::vector<std::unique_ptr<matrices>> all;
        std::vector<gemm_problem<bf16, bf16>> problems;
        for (int i = 0; i < product::problems_per_launch + 5; ++i) {
            const int k = i % 7 == 3 ? 13 : 8 + 8 * (i % 4);
            all.push_back(std::make_unique<matrices>(where, gemm_case{i * 5 % 150, 8 + i, k}, i));
            problems.push_back(all.back()->upload());
        }
        product::launch_grouped(where, problems, std::vector<epilogue::identity>(problems.size()));
        for (auto& one : all) CHECK(one->worst(as_product) <= 0.005);
    }
}

TEST_CASE("results are bitwise reproducible") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const gemm_case& sizes : {gemm_case{3, 520, 2048}, gemm_case{40, 136, 1024}, gemm_case{200, 264, 136}}) {
            matrices given(where, sizes, 1);
            const auto problem = given.upload();
            product::launch(where, problem);
            CHECK(given.worst(as_product) <= 0.005);
            const std::vector<bf16> before = given.out.values;
            product::launch(where, problem);
            given.out.download();
            for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(before[i].bits == given.out.values[i].bits);
        }
    }
}

#if defined(__CUDACC__)
TEST_CASE("launches of every kernel can be captured in a CUDA graph and replayed") {
    cudaStream_t stream;
    imbrex::detail::require_success(cudaStreamCreate(&stream), "stream");
    for (const gemm_case& sizes : {gemm_case{8, 520, 1024}, gemm_case{50, 520, 1024}, gemm_case{100, 520, 1024},
                                   gemm_case{300, 264, 64}, gemm_case{3000, 2048, 64}, gemm_case{33, 65, 13}}) {
        matrices given(world::device, sizes, 1);
        const auto problem = given.upload();
        CAPTURE(name_of(product::choice(world::device, problem)));
        cudaGraph_t graph;
        cudaGraphExec_t replay;
        REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
        product::launch(world::device, problem, {}, stream);
        REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
        REQUIRE(cudaGraphInstantiate(&replay, graph, 0) == cudaSuccess);
        for (int i = 0; i < 3; ++i) {
            given.out.upload();  // poison
            REQUIRE(cudaGraphLaunch(replay, stream) == cudaSuccess);
            REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
            CHECK(given.worst(as_product) <= 0.005);
            given.out.values.assign(given.out.values.size(), matrices::poison());
        }
        cudaGraphExecDestroy(replay);
        cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(stream);
}
#endif

#if !defined(__CUDACC__)
TEST_CASE("check of a grouped GEMM") {
    std::vector<bf16> a(200 * 96), b(96 * 136), first(200 * 136), second(70 * 136);
    fill_random(a, 1);
    fill_random(b, 2);
    std::vector<product::problem> problems{{200, 136, 96, {a.data()}, {b.data()}, {first.data()}},
                                           {70, 136, 96, {a.data()}, {b.data()}, {second.data()}}};
    const std::vector<epilogue::identity> two(2);
    CHECK(text_of(product::check_grouped(problems, two, {.schedules = 4})) == "");
    problems[1].out.pointer = first.data() + 130 * 136;
    CHECK(text_of(product::check_grouped(problems, two, {.schedules = 4})).find("hazard: race") == 0);
    CHECK(error_message_of([&] { product::check_grouped(problems, {}); }) ==
          "epilogues: 0; there must be one for each of 2 problems");
}
#endif
