// The grouped GEMM over experts with e4m3 rows and weights beside plain loops in float64: promoted sums, block scales of
// sorted and of gathered rows, invalid arguments. No hazard in any schedule, and every mutation is detected.
#include <imbrex/kernels/moe_gemm.hpp>

#include "kernels/moe_gemm_trial.hpp"
#include "synchronisation.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr moe_rows gathered = moe_rows::gathered, sorted = moe_rows::sorted;
constexpr auto as_product = [](double x, double, int, int) { return x; };

template <moe_rows Rows, class Mainloop>
void check_unscaled(const moe_gemm_case& one) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        moe_gemm_trial<plain_experts<e4m3>, float, Rows, false> trial(where, one, 1);
        moe_gemm<e4m3, float, Rows, epilogue::identity, Mainloop>::launch(where, trial.upload());
        CHECK(trial.worst(as_product) <= 0.005);
    }
}

// Block scales: of A per row and 128 of K, of the weights of an expert per 128 x 128.
template <moe_rows Rows>
struct scaled_trial : moe_gemm_trial<plain_experts<e4m3>, float, Rows, false> {
    using base = moe_gemm_trial<plain_experts<e4m3>, float, Rows, false>;
    using mainloop =
        std::conditional_t<Rows == gathered, promoted_with_gathered_block_scales, promoted_with_block_scales>;
    int groups, stride, blocks, a_rows;
    buffer<float> of_a, of_b;

    scaled_trial(world where, const moe_gemm_case& one)
        : base(where, one, 1),
          groups(ceil_div(one.k, 128)),
          stride(ceil_div(groups, 8) * 8),
          blocks(ceil_div(one.n, 128)),
          a_rows(Rows == gathered ? one.sizes.tokens : one.sizes.max_rows()),
          of_a(where, std::size_t(a_rows) * stride),
          of_b(where, std::size_t(one.sizes.experts) * blocks * groups) {
        fill_random(of_a.values, 7, 0.5f, 2.0f);
        fill_random(of_b.values, 8, 0.5f, 2.0f);
        base::scale = [this](int row, int expert, int column, int i) {
            return double{of_a.values[row * stride + i / 128]} *
                   of_b.values[(expert * blocks + column / 128) * groups + i / 128];
        };
    }
    mainloop scales() {
        mainloop made;
        made.a_scales = {of_a.upload(), {1, a_rows, groups}, {0, stride}};
        made.b_scales = {of_b.upload(), {base::one.sizes.experts, blocks, groups}, {blocks * groups, groups}};
        if constexpr (Rows == gathered) made.token_of_row = base::routing.routing.token_of_row;
        return made;
    }
};

template <moe_rows Rows>
void check_scaled(const moe_gemm_case& one) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(one.k);
        scaled_trial<Rows> trial(where, one);
        using product = moe_gemm<e4m3, float, Rows, epilogue::identity, typename scaled_trial<Rows>::mainloop>;
        product::launch(where, trial.upload(), {}, nullptr, trial.scales());
        CHECK(trial.worst(as_product) <= 0.005);
    }
}

}  // namespace

TEST_CASE("MoE GEMM, e4m3: promoted sums, and the tensor cores' own") {
    check_unscaled<gathered, promoted>({{40, 3, 2}, 144, 272});
    check_unscaled<sorted, promoted>({{20, 2, 2, 64}, 136, 128, true});
    check_unscaled<gathered, accumulate_in_place>({{20, 3, 1}, 264, 144});
}

TEST_CASE("MoE GEMM, e4m3: block scales of gathered and of sorted rows") {
    check_scaled<gathered>({{40, 3, 2}, 264, 1168, true});
    check_scaled<gathered>({{9, 2, 1, 64}, 136, 144});
    check_scaled<sorted>({{40, 3, 2}, 136, 272, true});
}

TEST_CASE("MoE GEMM, e4m3: error messages") {
    scaled_trial<gathered> trial(world::host, {{4, 2, 1}, 128, 256});
    const auto error_of = [&](const auto& change) {
        auto scales = trial.scales();
        change(scales);
        return error_message_of([&] {
            moe_gemm<e4m3, float, gathered, epilogue::identity, promoted_with_gathered_block_scales>::launch(
                world::host, trial.upload(), {}, nullptr, scales);
        });
    };
    CHECK(error_of([](auto& scales) { scales.token_of_row = nullptr; }) ==
          "mainloop.token_of_row: null; it is the routing's");
    CHECK(error_of([](auto& scales) {
              scales.a_scales.extents = {1, 4, 3};
          }) == "mainloop.a_scales: 3 columns; k of 256 has 2 groups");
    CHECK(error_of([](auto& scales) {
              scales.a_scales.strides = {0, 2};
          }) == "mainloop.a_scales: rows 2 elements apart; must be even and at least 8");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE GEMM, e4m3: no hazard in any schedule, and every mutation is detected") {
    scaled_trial<gathered> trial(world::host, {{3, 2, 1, 64}, 128, 384});
    using kernel = moe_gemm_hopper<e4m3, float, gathered, epilogue::identity, 64,
                                   gemm_shape{.block_n = 128, .block_k = 128, .stages = 3, .cluster = 1},
                                   promoted_with_gathered_block_scales>;
    check_synchronisation<kernel>("MoE GEMM, e4m3", {1}, kernel::describe(trial.upload(), {}, trial.scales()), 100);
}
#endif
