// The Ampere-class kernels of attention_backward against gradients in double: every tile shape, rows that are not aligned,
// masks, score_mods, GQA, varlen and padded batches, and dQ in a fixed order; schedules and mutations.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <cmath>
#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_backward_options atomic_64{.head_dims = {64}};
constexpr attention_backward_options ordered_64{.head_dims = {64}, .deterministic = true};
[[maybe_unused]] constexpr attention_backward_options atomic_sums{.head_dims = {64},
                                                                  .gradients = attention_gradients::accumulated};
[[maybe_unused]] constexpr attention_backward_options ordered_sums{
    .head_dims = {64}, .deterministic = true, .gradients = attention_gradients::accumulated};

// Rows that are not aligned keep the Hopper kernel away.
template <attention_backward_options Options, class In = bf16, class Mask, class Score = score_mod::identity,
          class ScoreInDouble = decltype(unchanged_score), class Slope = decltype(unit_slope)>
void check(backward_case given, const Mask& mask, const Score& score = {},
           const ScoreInDouble& in_double = unchanged_score, const Slope& slope = unit_slope) {
    given.gap = 1;
    check_backward<attention_backward<In, Options, Mask, Score>, In, Options.gradients>(
        given, mask, score, in_double, slope, attention_kernel_kind::ampere_class);
}

template <attention_head_dims HeadDims>
void check_shape() {
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 90};
    given.head_dim = HeadDims.qk;
    given.head_dim_v = HeadDims.v;
    check<attention_backward_options{.head_dims = {HeadDims}}>(given, causal_mask{});
    check<attention_backward_options{.head_dims = {HeadDims}, .deterministic = true}>(given, causal_mask{});
}

}  // namespace

TEST_CASE("attention_backward for sm_80: tile shapes of all head dims") {
    check_shape<attention_head_dims(192, 128)>();
#if !defined(IMBREX_FEW_SHAPES)
    check_shape<attention_head_dims(96)>();
    check_shape<attention_head_dims(128)>();
    check_shape<attention_head_dims(192)>();
    check_shape<attention_head_dims(256)>();
    check_shape<attention_head_dims(96, 192)>();
#endif
    for (const int head_dim : {16, 48}) {
        check<atomic_64>({.seqlen_q = 70, .seqlen_k = 140, .head_dim = head_dim}, causal_mask{});
    }
}

TEST_CASE_TEMPLATE("attention_backward for sm_80: masks, lengths and batches", Ordered, std::false_type,
                   std::true_type) {
    constexpr attention_backward_options options{.head_dims = {64}, .deterministic = Ordered::value};
    check<options>({.seqlen_q = 2, .seqlen_k = 1}, full_mask{});
    check<options>({.heads = 4, .kv_heads = 2, .seqlen_q = 100, .seqlen_k = 150}, causal_mask{});
    check<options>({.heads = 3, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 20}, causal_mask{});  // rows without keys
    check<options>({.seqlen_q = 200, .seqlen_k = 230}, window_mask{70, 10});
    check<options>({.batches = 2, .heads = 2, .seqlen_q = 70, .seqlen_k = 140}, two_of_three_mask{true});
    backward_case varlen{.heads = 2, .seqlen_q = 200, .seqlen_k = 220};
    varlen.starts_q = {0, 70, 70, 90, 190};
    varlen.starts_k = {0, 30, 60, 190, 210};
    check<options>(varlen, causal_mask{});
    backward_case padded{.batches = 3, .heads = 2, .seqlen_q = 40, .seqlen_k = 150};
    padded.used_k = {150, 0, 70};
    check<options>(padded, causal_mask{});
}

TEST_CASE("attention_backward for sm_80: softcap, a score_mod that adds a term, fp16") {
    const float cap = 1.5f;
    check<ordered_64>(
        {.heads = 2, .seqlen_q = 130, .seqlen_k = 140}, causal_mask{}, score_mod::softcap{cap},
        [&](const attention_extents&, int, int, double x) { return cap * std::tanh(x / cap); },
        [&](const attention_extents&, int, int, double x) { return 1 - std::pow(std::tanh(x / cap), 2); });
#if !defined(IMBREX_FEW_SHAPES)
    constexpr attention_backward_options wider{.head_dims = {128}};
    check<wider, fp16>(
        {.heads = 2, .seqlen_q = 70, .seqlen_k = 140}, full_mask{}, own_score{0.3f},
        [](const attention_extents& s, int, int key, double x) { return x - 0.3 * ((key + s.head) % 5); });
#endif
}

TEST_CASE("attention_backward for sm_80: NaN behind the end of a sequence has no effect") {
    backward_case given{.seqlen_q = 200, .seqlen_k = 200, .gap = 1};
    given.starts_q = given.starts_k = {0, 70, 130, 200};
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged_score, unit_slope);
        const std::size_t row = 65;
        for (auto* values : {&there.q.values, &there.d_out.values, &there.k.values, &there.v.values}) {
            std::fill(values->begin() + 70 * row, values->begin() + 130 * row, bf16(NAN));
        }
        auto problem = there.upload();
        using backward = attention_backward<bf16, ordered_64>;
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        for (auto* gradient : {&there.d_q, &there.d_k, &there.d_v}) {
            gradient->download();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < gradient->values.size(); ++i) {
                const bool spoilt = i / row >= 70 && i / row < 130, unused = i % row == 64;
                wrong += !unused && std::isnan(float(gradient->values[i])) != spoilt ? 1 : 0;
            }
            CHECK(wrong == 0);
        }
    }
}

#if !defined(__CUDACC__)
TEST_CASE("attention_backward for sm_80: dQ in a fixed order has the same bits under every schedule") {
    constexpr auto accumulated = attention_gradients::accumulated;
    const auto d_q_of = [&]<attention_backward_options Options>(std::uint64_t seed) {
        backward_trial<bf16, accumulated> there(
            world::host_checked, {.heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 500, .gap = 1}, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged_score, unit_slope);
        auto problem = there.upload();
        using backward = attention_backward<bf16, Options>;
        there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
        host::check_launches([&] { backward::launch(world::host_checked, problem); },
                             {.schedules = 1, .first_seed = seed});
        return there.d_q.values;
    };
    const auto differs = [&]<attention_backward_options Options>() {
        const auto first = d_q_of.template operator()<Options>(0);
        for (std::uint64_t seed = 1; seed < 4; ++seed) {
            if (d_q_of.template operator()<Options>(seed) != first) return true;
        }
        return false;
    };
    CHECK(!differs.template operator()<ordered_sums>());
    CHECK(differs.template operator()<atomic_sums>());
}

namespace {

template <attention_backward_options Options, attention_head_dims HeadDims>
void check_schedules() {
    using backward = attention_backward<bf16, Options, causal_mask>;
    backward_case given{.seqlen_q = 160, .seqlen_k = 165, .head_dim = HeadDims.qk};
    given.head_dim_v = HeadDims.v;
    given.starts_q = {0, 140, 160};  // the last block of each sequence is not full
    given.starts_k = {0, 135, 165};
    given.gap = 1;
    backward_trial<bf16> there(world::host_checked, given, 1);
    there.run_forward([](const attention_extents& s, int query, int key) { return key <= query + s.offset(); },
                      unchanged_score, unit_slope);
    auto problem = there.upload();
    there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
    const auto found = backward::check(problem, {.schedules = schedules_to_run(1000) / 5});
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    // Twice: the second launch writes to the workspace, which kernels of the first may still read.
    const auto launch = [&] {
        backward::launch(world::host_checked, problem);
        backward::launch(world::host_checked, problem);
    };
    const host::mutation_score score = host::mutate_launches(launch, {.schedules = schedules_to_run(100)});
    INFO(score.text());
    CHECK(score.total() > 10);
    CHECK(score.killed() == score.total());
}

}  // namespace

TEST_CASE("attention_backward for sm_80: silent under many schedules, and every mutation is detected") {
    check_schedules<atomic_64, attention_head_dims(64)>();
    constexpr attention_head_dims one_stage(192, 128);
#if !defined(IMBREX_FEW_SHAPES)
    check_schedules<ordered_64, attention_head_dims(64)>();
    check_schedules<attention_backward_options{.head_dims = {one_stage}}, one_stage>();
#endif
    check_schedules<attention_backward_options{.head_dims = {one_stage}, .deterministic = true}, one_stage>();
}
#endif
