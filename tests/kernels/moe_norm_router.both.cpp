// RMSNorm, router product and routing in one launch beside plain loops in float64 and the router's own launch: ragged sizes,
// many experts, both roundings of rows, invalid arguments; no hazard, and every mutation is detected.
#include <imbrex/kernels/moe_norm_router.hpp>
#include <imbrex/kernels/rms_norm.hpp>

#include "kernels/moe_trial.hpp"
#include "synchronisation.hpp"

#include <memory>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class T>
struct norm_router_trial {
    moe_sizes sizes;
    int columns, gap;  // elements between rows of x
    buffer<T> x, out, router;
    buffer<float> norm_weight, bias, logits;
    routing_trial routing;

    norm_router_trial(world where, const moe_sizes& sizes, int columns, unsigned seed, int gap = 0)
        : sizes(sizes),
          columns(columns),
          gap(gap),
          x(where, std::size_t(sizes.tokens) * (columns + gap)),
          out(where, std::size_t(sizes.tokens) * columns, convert<T>(NAN)),
          router(where, std::size_t(sizes.experts) * columns),
          norm_weight(where, columns),
          bias(where, sizes.experts),
          logits(where, std::size_t(sizes.tokens) * sizes.experts, NAN),
          routing(where, sizes) {
        fill_random(x.values, seed, -3, 3);
        fill_random(router.values, seed + 1);
        fill_random(norm_weight.values, seed + 2, 0.5f, 2);
        fill_random(bias.values, seed + 3);
    }

    moe_norm_router_problem<T> upload() {
        return {.x = as_rows<const T>(x.upload(), sizes.tokens, columns, columns + gap),
                .norm_weight = norm_weight.upload(),
                .epsilon = 0.01f,
                .out = as_rows(out.upload(), sizes.tokens, columns),
                .router = {router.upload()},
                .bias = bias.upload(),
                .logits = logits.upload(),
                .routing = routing.routing};
    }

    void check_results(world where, bool biased) {
        for (buffer<T>* one : {&out, &router}) one->download();
        logits.download();
        routing.download();
        double worst_row = 0, worst_logit = 0;
        for (int token = 0; token < sizes.tokens; ++token) {
            const T* const from = x.values.data() + std::size_t(token) * (columns + gap);
            const T* const normed = out.values.data() + std::size_t(token) * columns;
            double squares = 0;
            for (int i = 0; i < columns; ++i) squares += double(convert<float>(from[i])) * convert<float>(from[i]);
            const double rstd = 1 / std::sqrt(squares / columns + 0.01f);
            for (int i = 0; i < columns; ++i) {
                const double wanted = convert<float>(from[i]) * rstd * norm_weight.values[i];
                worst_row =
                    std::max(worst_row, std::abs(convert<float>(normed[i]) - wanted) / (std::abs(wanted) + 0.01));
            }
            for (int expert = 0; expert < sizes.experts; ++expert) {
                double sum = biased ? bias.values[expert] : 0, magnitude = 1;
                for (int i = 0; i < columns; ++i) {
                    const double product = double(convert<float>(normed[i])) *
                                           convert<float>(router.values[std::size_t(expert) * columns + i]);
                    sum += product, magnitude += std::abs(product);
                }
                const double error = logits.values[std::size_t(token) * sizes.experts + expert] - sum;
                worst_logit = std::max(worst_logit, std::abs(error) / magnitude);
            }
        }
        CHECK(worst_row <= (std::is_same_v<T, bf16> ? 0x1p-8 : 0x1p-11));
        CHECK(worst_logit <= 1e-6);
        // The routing is that of these logits.
        routing_trial alone(where, sizes);
        moe_router<float>::launch(where,
                                  {as_rows<const float>(logits.upload(), sizes.tokens, sizes.experts), alone.routing});
        alone.download();
        const auto same = [&](const auto* here, const auto* there, int count) {
            CHECK(routing.read(here, count) == alone.read(there, count));
        };
        const moe_routing &here = routing.routing, &there = alone.routing;
        same(here.expert_of_choice, there.expert_of_choice, sizes.choices());
        same(here.row_of_choice, there.row_of_choice, sizes.choices());
        same(here.tiles, there.tiles, 1);
        same(here.expert_of_tile, there.expert_of_tile, alone.tiles());
        same(here.token_of_row, there.token_of_row, alone.tiles() * sizes.tile_rows);
        const auto weights = routing.read(here.weight_of_choice, sizes.choices()),
                   expected = alone.read(there.weight_of_choice, sizes.choices());
        for (int i = 0; i < sizes.choices(); ++i) CHECK(std::abs(weights[i] - expected[i]) <= 2e-6);
    }
};

template <class T>
void check(const moe_sizes& sizes, int columns, unsigned seed, int gap = 0, bool biased = true) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.tokens);
        CAPTURE(sizes.experts);
        CAPTURE(columns);
        norm_router_trial<T> trial(where, sizes, columns, seed, gap);
        auto problem = trial.upload();
        if (!biased) problem.bias = nullptr;
        moe_norm_router<T>::launch(where, problem);
        trial.check_results(where, biased);
    }
}

}  // namespace

TEST_CASE("MoE norm and router: ragged sizes") {
    check<bf16>({.tokens = 1, .experts = 32, .top_k = 4, .tile_rows = 8}, 2880, 1);
    check<bf16>({.tokens = 5, .experts = 7, .top_k = 2, .tile_rows = 8}, 24, 2, 8);
    check<fp16>({.tokens = 16, .experts = 130, .top_k = 8, .tile_rows = 16}, 1160, 3, 0, false);
    check<bf16>({.tokens = 2, .experts = 256, .top_k = 16, .tile_rows = 8}, 4096, 4, 16);
    check<bf16>({.tokens = 3, .experts = 17, .top_k = 1, .tile_rows = 8}, 2048, 5);
}

TEST_CASE("MoE norm and router: error messages") {
    const world where = worlds().front();
    norm_router_trial<bf16> trial(where, {.tokens = 2, .experts = 4, .top_k = 2, .tile_rows = 8}, 64, 6);
    const auto error_of = [&](const auto& change) {
        auto problem = trial.upload();
        change(problem);
        return error_message_of([&] { moe_norm_router<bf16>::launch(where, problem); });
    };
    CHECK(error_of([](auto&) {}) == "no error");
    CHECK(error_of([](auto& p) { p.norm_weight = nullptr; }) == "norm_weight: null; 64 elements are needed");
    CHECK(error_of([](auto& p) { p.logits = nullptr; }) == "logits: null; memory for 2 x 4 is needed");
    CHECK(error_of([](auto& p) { p.epsilon = -1; }) == "epsilon: -1; must be finite and not negative");
    CHECK(error_of([](auto& p) {
              p.x = as_rows(p.x.pointer, 2, 60);
              p.out = as_rows(p.out.pointer, 2, 60);
          }) ==
          "x: 2 rows of 60 columns and 4 experts; there may be up to 16 rows, columns a multiple of 8 up to 4096, and "
          "256 "
          "experts");
    CHECK(error_of([](auto& p) { p.routing.sizes.tokens = 1; }) == "x: 2 rows; routing.sizes.tokens is 1");
    CHECK(error_of([](auto& p) { ++p.x.pointer; }) ==
          "x, out, router, norm_weight: their rows must begin at multiples of 16 bytes");
}

#if !defined(__CUDACC__)
TEST_CASE("MoE norm and router: no hazard in any schedule, and every mutation is detected") {
    const world where = worlds().front();
    norm_router_trial<bf16> trial(where, {.tokens = 3, .experts = 20, .top_k = 2, .tile_rows = 8}, 40, 7);
    const auto problem = trial.upload();
    // Between kernels that write what it reads, and read what it writes.
    std::vector<bf16> hidden(trial.x.values), after(hidden.size());
    const auto norm = [&](const bf16* from, bf16* to) {
        rms_norm<bf16, float>::launch(
            world::host_checked, {.x = as_rows(from, 3, 40), .weight = problem.norm_weight, .out = as_rows(to, 3, 40)});
    };
    check_stream("MoE norm and router", [&] {
        norm(hidden.data(), const_cast<bf16*>(problem.x.pointer));
        moe_norm_router<bf16>::launch(world::host_checked, problem);
        norm(problem.out.pointer, after.data());
    });
    using kernel = moe_norm_router<bf16>::kernel<4>;
    check_synchronisation<kernel>("MoE norm and router", {1}, moe_norm_router<bf16>::arguments_of(problem, {}), 100);
}
#endif
