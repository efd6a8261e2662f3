// The router of a mixture of experts beside plain loops in float64: every policy, ragged sizes, equal logits, unaligned
// rows, infinite and missing logits, no tokens, invalid arguments; no hazard, and every mutation is detected.
#include <imbrex/kernels/moe_router.hpp>

#include "kernels/moe_trial.hpp"
#include "synchronisation.hpp"

#include <functional>
#include <limits>
#include <memory>
#include <numeric>

using namespace imbrex;
using namespace imbrex_test;

namespace {

using scores_of_row = std::function<std::vector<double>(const std::vector<double>&)>;

template <class In>
struct router_case {
    moe_sizes sizes;
    int gap = 0;  // elements between rows of logits
    std::vector<In> logits;

    router_case(const moe_sizes& sizes, unsigned seed, int gap = 0)
        : sizes(sizes), gap(gap), logits(std::size_t(sizes.tokens) * (sizes.experts + gap)) {
        fill_random(logits, seed, -6, 6);
    }
    double at(int token, int expert) const {
        return static_cast<float>(logits[std::size_t(token) * (sizes.experts + gap) + expert]);
    }

    // The choice by `rank`, weights from `share` over the chosen or over all.
    expected_routing expected(const scores_of_row& rank, const std::function<double(double)>& share, bool over_all,
                              double factor) const {
        expected_routing all;
        for (int token = 0; token < sizes.tokens; ++token) {
            std::vector<double> row(sizes.experts);
            for (int i = 0; i < sizes.experts; ++i) row[i] = at(token, i);
            const std::vector<double> scores = rank(row);
            std::vector<int> order(sizes.experts);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
            double sum = 0;
            for (int i = 0; i < (over_all ? sizes.experts : sizes.top_k); ++i) sum += share(row[order[i]]);
            for (int i = 0; i < sizes.top_k; ++i) {
                all.experts.push_back(order[i]);
                all.weights.push_back(factor * share(row[order[i]]) / sum);
            }
        }
        sort_expected(all, sizes);
        return all;
    }

    template <class Scoring>
    void check(const expected_routing& expected, const std::function<Scoring(world)>& scoring) const {
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(sizes.tokens);
            CAPTURE(sizes.experts);
            CAPTURE(sizes.top_k);
            buffer<In> rows(where, logits.size());
            rows.values = logits;
            routing_trial trial(where, sizes);
            moe_router<In, Scoring>::launch(
                where,
                {as_rows<const In>(rows.upload(), sizes.tokens, sizes.experts, sizes.experts + gap), trial.routing},
                scoring(where));
            trial.download();
            CHECK(trial.read(trial.routing.expert_of_choice, sizes.choices()) == expected.experts);
            CHECK(trial.read(trial.routing.row_of_choice, sizes.choices()) == expected.rows);
            REQUIRE(trial.tiles() == int(expected.expert_of_tile.size()));
            CHECK(trial.tiles() <= sizes.max_tiles());
            CHECK(trial.read(trial.routing.expert_of_tile, trial.tiles()) == expected.expert_of_tile);
            CHECK(trial.read(trial.routing.token_of_row, trial.tiles() * sizes.tile_rows) == expected.token_of_row);
            const auto weights = trial.read(trial.routing.weight_of_choice, sizes.choices());
            double worst = 0;
            for (int i = 0; i < sizes.choices(); ++i) {
                worst = std::max(worst, std::abs(weights[i] - expected.weights[i]));
            }
            CHECK(worst <= 2e-6);
        }
    }

    template <class Scoring = moe_scoring::softmax_of_chosen>
    void check_softmax(double factor = 1) const {
        const auto same = [](const std::vector<double>& row) { return row; };
        check<Scoring>(expected(
                           same, [](double x) { return std::exp(x); }, Scoring::over_all, factor),
                       [=](world) { return Scoring{static_cast<float>(factor)}; });
    }
};

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

}  // namespace

TEST_CASE("MoE router: softmax of the chosen, ragged sizes") {
    router_case<float>({.tokens = 1, .experts = 32, .top_k = 4}, 1).check_softmax();
    router_case<float>({.tokens = 70, .experts = 32, .top_k = 4, .tile_rows = 16}, 2).check_softmax(2.5);
    router_case<float>({.tokens = 33, .experts = 5, .top_k = 5, .tile_rows = 8}, 3).check_softmax();
    router_case<float>({.tokens = 100, .experts = 130, .top_k = 1, .tile_rows = 4}, 4).check_softmax();
    router_case<float>({.tokens = 3, .experts = 1, .top_k = 1, .tile_rows = 2}, 5).check_softmax();
    router_case<float>({.tokens = 40, .experts = 512, .top_k = 16, .tile_rows = 64}, 6).check_softmax();
    router_case<float>({.tokens = 31, .experts = 24, .top_k = 3}, 7, 3).check_softmax();  // unaligned rows
}

TEST_CASE("MoE router: softmax of all experts") {
    router_case<float>({.tokens = 65, .experts = 60, .top_k = 4, .tile_rows = 16}, 8)
        .check_softmax<moe_scoring::softmax_of_all>();
    router_case<float>({.tokens = 9, .experts = 300, .top_k = 8, .tile_rows = 16}, 9)
        .check_softmax<moe_scoring::softmax_of_all>(3);
}

TEST_CASE("MoE router: the first of equal logits wins") {
    router_case<bf16> many({.tokens = 40, .experts = 16, .top_k = 6, .tile_rows = 8}, 10);
    for (bf16& one : many.logits) one = convert<bf16>(std::round(static_cast<float>(one)));
    many.check_softmax();
}

TEST_CASE("MoE router: sigmoid with bias, choosing among the best groups") {
    const auto check = [](const moe_sizes& sizes, int groups, int top_groups, bool biased, unsigned seed) {
        const router_case<float> one(sizes, seed);
        std::vector<float> bias(sizes.experts, 0.0f);
        if (biased) fill_random(bias, seed + 1);
        const auto rank = [&](const std::vector<double>& row) {
            std::vector<double> scores(row.size());
            for (std::size_t i = 0; i < row.size(); ++i) scores[i] = sigmoid(row[i]) + bias[i];
            const int size = sizes.experts / groups;
            std::vector<std::pair<double, int>> best;
            for (int group = 0; group < groups; ++group) {
                std::vector<double> own(scores.begin() + group * size, scores.begin() + (group + 1) * size);
                std::sort(own.rbegin(), own.rend());
                best.push_back({-(own[0] + (size > 1 ? own[1] : 0)), group});
            }
            std::stable_sort(best.begin(), best.end());
            for (int i = top_groups; i < groups; ++i) {
                for (int j = 0; j < size; ++j) scores[best[i].second * size + j] = -INFINITY;
            }
            return scores;
        };
        std::vector<std::unique_ptr<buffer<float>>> alive;
        one.check<moe_scoring::sigmoid_with_bias>(one.expected(rank, sigmoid, false, 2.5), [&](world where) {
            alive.push_back(std::make_unique<buffer<float>>(where, bias.size()));
            alive.back()->values = bias;
            return moe_scoring::sigmoid_with_bias{2.5f, biased ? alive.back()->upload() : nullptr, groups, top_groups};
        });
    };
    check({.tokens = 34, .experts = 64, .top_k = 6, .tile_rows = 16}, 1, 1, true, 20);
    check({.tokens = 35, .experts = 256, .top_k = 8, .tile_rows = 16}, 8, 4, true, 22);
    check({.tokens = 17, .experts = 288, .top_k = 3, .tile_rows = 16}, 4, 1, false, 24);
    check({.tokens = 5, .experts = 8, .top_k = 2, .tile_rows = 16}, 8, 3, true, 26);
}

TEST_CASE("MoE router: NaN and infinite logits never lead to an expert twice or one that does not exist") {
    const moe_sizes sizes{.tokens = 3, .experts = 8, .top_k = 4, .tile_rows = 4};
    router_case<float> one(sizes, 30);
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    for (int i = 0; i < 8; ++i) {
        one.logits[i] = nan;
        one.logits[8 + i] = -infinity;
        one.logits[16 + i] = i == 5 ? 1.0f : i == 6 ? 2.0f : i % 2 == 0 ? nan : -infinity;
    }
    for (const world where : worlds()) {
        buffer<float> logits(where, one.logits.size());
        logits.values = one.logits;
        routing_trial trial(where, sizes);
        moe_router<float>::launch(where, {as_rows<const float>(logits.upload(), 3, 8), trial.routing});
        trial.download();
        CHECK(trial.read(trial.routing.expert_of_choice, 12) == std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3, 6, 5, 0, 1});
    }
}

TEST_CASE("MoE router: no tokens") {
    const moe_sizes sizes{.tokens = 0, .experts = 8, .top_k = 2};
    moe_router<float>::launch(world::host, {as_rows<const float>(nullptr, 0, 8), {sizes}});
    CHECK(sizes.max_rows() == 0);
}

TEST_CASE("MoE router: error messages") {
    const auto sizes_error = [](const moe_sizes& sizes) {
        return error_message_of([&] { moe_routing::workspace_bytes(sizes); });
    };
    CHECK(sizes_error({.tokens = 1, .experts = 513, .top_k = 2}) == "experts: 513; must be from 1 to 512");
    CHECK(sizes_error({.tokens = 1, .experts = 32, .top_k = 17}) == "top_k: 17; must be from 1 to 16 for 32 experts");
    CHECK(sizes_error({.tokens = 1, .experts = 3, .top_k = 4}) == "top_k: 4; must be from 1 to 3 for 3 experts");
    CHECK(sizes_error({.tokens = 1, .experts = 3, .top_k = 1, .tile_rows = 0}) ==
          "tile_rows: 0; must be from 1 to 256");
    CHECK(sizes_error({.tokens = -1, .experts = 3, .top_k = 1}).find("tokens: -1; with 1 choices each") == 0);

    routing_trial trial(world::host, {.tokens = 2, .experts = 4, .top_k = 2});
    std::vector<float> logits(8);
    const auto launch_error = [&](int rows, int columns, moe_routing routing,
                                  const moe_scoring::sigmoid_with_bias& scoring = {}) {
        return error_message_of([&] {
            moe_router<float, moe_scoring::sigmoid_with_bias>::launch(
                world::host, {as_rows<const float>(logits.data(), rows, columns), routing}, scoring);
        });
    };
    CHECK(launch_error(1, 4, trial.routing) == "logits: 1 rows; routing.sizes.tokens is 2");
    CHECK(launch_error(2, 3, trial.routing) == "logits.extents[2]: 3; routing.sizes.experts is 4");
    CHECK(launch_error(2, 4, trial.routing, {.groups = 3}) ==
          "scoring.groups: 3; must be from 1 to 64 and divide the number of experts, 4");
    CHECK(launch_error(2, 4, trial.routing, {.groups = 2, .top_groups = 3}) ==
          "scoring.top_groups: 3; must be from 1 to 2");
    CHECK(launch_error(2, 4, trial.routing, {.groups = 4, .top_groups = 1}) == "top_k: 2; 1 groups of experts have 1");
    moe_routing missing = trial.routing;
    missing.tiles = nullptr;
    CHECK(launch_error(2, 4, missing) == "routing.tiles: null; take the routing from moe_routing::in_workspace");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE router: no hazard in any schedule, and every mutation is detected") {
    const moe_sizes sizes{.tokens = 70, .experts = 6, .top_k = 2, .tile_rows = 8};
    const router_case<float> one(sizes, 40);
    routing_trial trial(world::host, sizes);
    const moe_router_problem<float> problem{as_rows<const float>(one.logits.data(), sizes.tokens, sizes.experts),
                                            trial.routing};
    check_stream("MoE router", [&] { moe_router<float>::launch(world::host_checked, problem); });
    using router = moe_router<float>;
    constexpr auto unaligned = row_alignment::unaligned;
    const auto logits = row_accessor_of(problem.logits);
    check_synchronisation<router::kernel<256, unaligned>>("MoE router, choice", {3}, {logits, trial.routing, {}}, 100);
    router::launch(world::host, problem);
    check_synchronisation<sort_choices_kernel>("MoE router, sort", {3}, {trial.routing}, 100);
    routing_trial few(world::host, {.tokens = 20, .experts = 6, .top_k = 2, .tile_rows = 8});
    check_synchronisation<router::kernel<256, unaligned, true>>("MoE router, few tokens", {1},
                                                                {logits, few.routing, {}}, 100);
}
#endif
