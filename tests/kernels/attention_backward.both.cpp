// attention_backward against gradients in double: head dims, masks, score_mods, GQA, lengths, varlen and padded batches,
// what lies behind the end of a sequence, argument checks, and schedules of the checker.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// The Hopper kernel alone: attention_backward/ has the tests of the other one.
constexpr attention_backward_options of_64{.head_dims = {64}, .targets = kernel_targets::hopper};
constexpr attention_backward_options of_64_and_128{.head_dims = {64, 128}, .targets = kernel_targets::hopper};

template <class Mask>
void check(const backward_case& given, const Mask& mask) {
    check_backward<attention_backward<bf16, of_64_and_128, Mask>, bf16>(given, mask, score_mod::identity{},
                                                                        unchanged_score, unit_slope);
}

}  // namespace

TEST_CASE("attention_backward: full and causal, lengths that do not fill blocks, GQA") {
    for (const int head_dim : {64, 128}) {
        check({.seqlen_q = 128, .seqlen_k = 128, .head_dim = head_dim}, full_mask{});
        check({.seqlen_q = 1, .seqlen_k = 1, .head_dim = head_dim}, full_mask{});
        check({.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 150, .seqlen_k = 270, .head_dim = head_dim},
              causal_mask{});
    }
    check({.heads = 3, .kv_heads = 1, .seqlen_q = 300, .seqlen_k = 40}, causal_mask{});  // queries without keys
    for (const int head_dim : {16, 48, 80, 96}) {
        check({.seqlen_q = 70, .seqlen_k = 140, .head_dim = head_dim}, causal_mask{});
    }
}

TEST_CASE("attention_backward: window, chunks, and a mask that is only a function of positions") {
    check({.seqlen_q = 300, .seqlen_k = 330}, window_mask{70, 10});
    check({.seqlen_q = 300, .seqlen_k = 330}, chunked_mask{100});
    check({.batches = 2, .heads = 2, .seqlen_q = 200, .seqlen_k = 140}, two_of_three_mask{true});
}

TEST_CASE("attention_backward: softcap with its derivative, and a score_mod that adds a term") {
    const float cap = 1.5f;
    using softcap = attention_backward<bf16, of_64, causal_mask, score_mod::softcap>;
    check_backward<softcap, bf16>(
        {.heads = 2, .seqlen_q = 130, .seqlen_k = 140}, causal_mask{}, score_mod::softcap{cap},
        [&](const attention_extents&, int, int, double x) { return cap * std::tanh(x / cap); },
        [&](const attention_extents&, int, int, double x) { return 1 - std::pow(std::tanh(x / cap), 2); });
    using own = attention_backward<bf16, of_64, full_mask, own_score>;
    check_backward<own, bf16>(
        {.heads = 2, .seqlen_q = 70, .seqlen_k = 140}, full_mask{}, own_score{0.3f},
        [](const attention_extents& s, int, int key, double x) { return x - 0.3 * ((key + s.head) % 5); }, unit_slope);
}

TEST_CASE("attention_backward: fp16") {
    using half = attention_backward<fp16, of_64, causal_mask>;
    check_backward<half, fp16>({.seqlen_q = 130, .seqlen_k = 140}, causal_mask{}, score_mod::identity{},
                               unchanged_score, unit_slope);
}

TEST_CASE("attention_backward: varlen; NaN behind the end of a sequence has no effect") {
    backward_case given{.heads = 2, .seqlen_q = 400, .seqlen_k = 400};
    given.starts_q = {0, 130, 130, 190, 390};
    given.starts_k = {0, 70, 200, 290, 390};
    check(given, causal_mask{});
    using backward = attention_backward<bf16, of_64>;
    const auto all = [](const attention_extents&, int, int) { return true; };
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 1);
        there.run_forward(all, unchanged_score, unit_slope);
        // Rows 130 to 189 of Q and dO belong to the third sequence, keys 200 to 289, too: they are NaN.
        const std::size_t row = 2 * 64;
        for (auto* values : {&there.q.values, &there.d_out.values}) {
            std::fill(values->begin() + 130 * row, values->begin() + 190 * row, bf16(NAN));
        }
        for (auto* values : {&there.k.values, &there.v.values}) {
            std::fill(values->begin() + 200 * 64, values->begin() + 290 * 64, bf16(NAN));
        }
        auto problem = there.upload();
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        there.d_q.download();
        there.d_k.download();
        const auto first_nan = [](const auto& values, std::size_t begin, std::size_t end) {
            while (begin < end && !std::isnan(float(values[begin]))) ++begin;
            return begin;
        };
        CHECK(first_nan(there.d_q.values, 0, 130 * row) == 130 * row);
        CHECK(first_nan(there.d_q.values, 190 * row, 390 * row) == 390 * row);
        CHECK(first_nan(there.d_k.values, 0, 200 * 64) == 200 * 64);
        CHECK(first_nan(there.d_k.values, 290 * 64, 390 * 64) == 390 * 64);
    }
}

TEST_CASE("attention_backward: a padded batch; keys behind seqused_k get zeros") {
    backward_case given{.batches = 3, .heads = 2, .seqlen_q = 100, .seqlen_k = 300};
    given.used_k = {300, 0, 140};
    check(given, causal_mask{});
    using backward = attention_backward<bf16, of_64>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged_score, unit_slope);
        std::fill(there.v.values.begin() + (2 * 300 + 140) * 64, there.v.values.end(), bf16(NAN));
        std::fill(there.k.values.begin() + (2 * 300 + 140) * 64, there.k.values.end(), bf16(NAN));
        auto problem = there.upload();
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        there.d_k.download();
        there.d_v.download();
        for (int i = (2 * 300 + 140) * 64; i < 3 * 300 * 64; ++i) {
            REQUIRE(float(there.d_k.values[i]) == 0);
            REQUIRE(float(there.d_v.values[i]) == 0);
        }
        for (int i = 300 * 64; i < 2 * 300 * 64; ++i) REQUIRE(float(there.d_v.values[i]) == 0);
    }
}

TEST_CASE("attention_backward: no queries, no keys, and invalid arguments") {
    using backward = attention_backward<bf16, of_64>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        backward_trial<bf16> without_queries(where, {.seqlen_q = 0, .seqlen_k = 70}, 1);
        auto problem = without_queries.upload();
        CHECK(backward::workspace_bytes(problem) == 0);
        backward::launch(where, problem);
        without_queries.d_k.download();
        for (const bf16 x : without_queries.d_k.values) REQUIRE(float(x) == 0);

        backward_trial<bf16> without_keys(where, {.seqlen_q = 70, .seqlen_k = 0}, 1);
        std::fill(without_keys.out.values.begin(), without_keys.out.values.end(), bf16(0.0f));
        std::fill(without_keys.lse2.values.begin(), without_keys.lse2.values.end(), -INFINITY);
        problem = without_keys.upload();
        without_keys.add_workspace(where, problem, backward::workspace_bytes(problem));
        backward::launch(where, problem);
        without_keys.d_q.download();
        for (const bf16 x : without_keys.d_q.values) REQUIRE(float(x) == 0);

        backward_trial<bf16> there(where, {.seqlen_q = 70, .seqlen_k = 70}, 1);
        problem = there.upload();
        const auto message = [&](const auto& broken) {
            return error_message_of([&] { backward::launch(where, broken); });
        };
        CHECK(message(problem).find("workspace_bytes: 0; at least ") == 0);
        problem.workspace_bytes = backward::workspace_bytes(problem);
        CHECK(message(problem).find("workspace: null; ") == 0);
        there.add_workspace(where, problem, problem.workspace_bytes);
        auto broken = problem;
        broken.d_k.extents.given[2] = 69;
        CHECK(message(broken) == "d_k.extents[2]: 69; k has 70 rows, and it must have as many");
        broken = problem;
        broken.lse2.pointer = nullptr;
        CHECK(message(broken) == "lse2.pointer: null; 1 x 1 x 70 numbers are needed");
        broken = problem;
        broken.workspace = static_cast<char*>(broken.workspace) + 16;
        CHECK(message(broken).find("; must be aligned to 128 bytes") != std::string::npos);
    }
}

#if !defined(__CUDACC__)
TEST_CASE("attention_backward: silent under many schedules, and every mutation is detected") {
    using backward = attention_backward<bf16, of_64, causal_mask>;
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 400, .seqlen_k = 240};
    given.starts_q = {0, 290, 400};  // the last block of each sequence is not full
    given.starts_k = {0, 100, 240};
    backward_trial<bf16> there(world::host_checked, given, 1);
    there.run_forward([](const attention_extents& s, int query, int key) { return key <= query + s.offset(); },
                      unchanged_score, unit_slope);
    auto problem = there.upload();
    there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
    const auto found = backward::check(problem, {.schedules = schedules_to_run(1000)});
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const auto launch = [&] { backward::launch(world::host_checked, problem); };
    const host::mutation_score score = host::mutate_launches(launch, {.schedules = schedules_to_run(100)});
    INFO(score.text());
    CHECK(score.total() > 80);
    CHECK(score.killed() == score.total());
}
#endif
