// The options of attention_backward and the optional parts of its problem, with both kernels: gradients that are added to
// fp32 tensors, delta instead of O, attention sinks, the choice of the kernel, and error messages.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr auto accumulated = attention_gradients::accumulated;
constexpr attention_backward_options sums{.head_dims = {64}, .gradients = accumulated};
constexpr attention_backward_options ordered_sums{.head_dims = {64}, .deterministic = true, .gradients = accumulated};
constexpr attention_backward_options rounded_64{.head_dims = {64}};
constexpr attention_backward_options hopper_64{.head_dims = {64}, .targets = kernel_targets::hopper};

// With the Hopper kernel, and with rows that are not aligned.
template <attention_backward_options Options>
void check(backward_case given) {
    using backward = attention_backward<bf16, Options, causal_mask>;
    for (const int gap : {0, 1}) {
        CAPTURE(gap);
        given.gap = gap;
        const bool hopper = gap == 0;
        check_backward<backward, bf16, Options.gradients>(
            given, causal_mask{}, score_mod::identity{}, unchanged_score, unit_slope,
            hopper ? attention_kernel_kind::hopper : attention_kernel_kind::ampere_class);
    }
}

}  // namespace

TEST_CASE("attention_backward: gradients are added to fp32 tensors") {
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 140, .seqlen_k = 150};
    check<sums>(given);
    check<ordered_sums>(given);
    given.starts_q = {0, 100, 140};
    given.starts_k = {0, 20, 150};
    check<sums>(given);
}

TEST_CASE("attention_backward: delta instead of O") {
    check<rounded_64>({.batches = 2, .heads = 2, .seqlen_q = 70, .seqlen_k = 80, .give_delta = true});
    check<ordered_sums>({.seqlen_q = 70, .seqlen_k = 80, .give_delta = true});
}

TEST_CASE("attention_backward: attention sinks; queries that see only a sink") {
    check<rounded_64>(
        {.batches = 3, .heads = 2, .kv_heads = 1, .seqlen_q = 300, .seqlen_k = 40, .sinks = {1.5f, -0.5f}});
    backward_case varlen{.heads = 2, .seqlen_q = 150, .seqlen_k = 150, .sinks = {0.5f, 2.5f}};
    varlen.starts_q = varlen.starts_k = {0, 30, 150};
    check<sums>(varlen);
    backward_trial<bf16> there(world::host, {.seqlen_q = 0, .seqlen_k = 70, .sinks = {1.0f}}, 1);
#if !defined(__CUDACC__)
    attention_backward<bf16, rounded_64>::launch(world::host, there.upload());
    there.d_sinks.download();
    CHECK(there.d_sinks.values[0] == 0);
#endif
}

TEST_CASE("attention_backward: no queries or no keys leave accumulated gradients as they are") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        for (const auto& [seqlen_q, seqlen_k] : {std::pair{0, 70}, {70, 0}}) {
            using backward = attention_backward<bf16, sums>;
            backward_trial<bf16, accumulated> there(where, {.seqlen_q = seqlen_q, .seqlen_k = seqlen_k}, 1);
            std::fill(there.out.values.begin(), there.out.values.end(), bf16(0.0f));
            std::fill(there.lse2.values.begin(), there.lse2.values.end(), -INFINITY);
            auto problem = there.upload();
            there.add_workspace(where, problem, backward::workspace_bytes(problem));
            backward::launch(where, problem);
            for (auto* gradient : {&there.d_q, &there.d_k, &there.d_v}) {
                gradient->download();
                for (const float x : gradient->values) REQUIRE(x == there.before);
            }
        }
    }
}

TEST_CASE("attention_backward: invalid options and arguments") {
    for (const world where : worlds()) {
        backward_trial<bf16> there(where, {.heads = 2, .seqlen_q = 70, .seqlen_k = 70, .sinks = {1.0f, 1.0f}}, 1);
        const auto problem = there.upload();
        const auto message = [&](const auto& broken) {
            return error_message_of([&] { attention_backward<bf16, rounded_64>::choice(where, broken); });
        };
        auto broken = problem;
        broken.sinks = nullptr;
        CHECK(message(broken) == "sinks: null; d_sinks needs the 2 logits of the forward pass");
        broken = problem;
        broken.delta = {there.delta.upload(), 140, 69};
        CHECK(message(broken) == "delta.head_stride: 69; must be at least 70, the number of queries");
        broken.delta.head_stride = 70;
        broken.d_out.extents.given[2] = 69;
        CHECK(message(broken) == "d_out.extents[2]: 69; q has 70 rows, and it must have as many");
        broken = problem;
        broken.d_out.extents.given[2] = 69;
        CHECK(message(broken) == "d_out.extents[2]: 69; out has 70 rows, and it must have as many");
        broken = problem;
        there.add_workspace(where, broken, attention_backward<bf16, rounded_64>::workspace_bytes(broken));
        broken.d_out.strides.given[2] = 129;
        CHECK(error_message_of([&] { attention_backward<bf16, hopper_64>::launch(where, broken); }) ==
              "q, k, v, out, d_out, d_q, d_k, d_v, world: " + std::string(name_of(where)) +
                  "; kernel_targets::hopper needs sm_90a, and pointers and strides that are multiples of 16 bytes");
    }
}

#if !defined(__CUDACC__)
TEST_CASE(
    "attention_backward: accumulated gradients and sinks are silent under schedules, and mutations are detected") {
    using backward = attention_backward<bf16, sums>;
    for (const int gap : {0, 1}) {
        backward_trial<bf16, accumulated> there(
            world::host_checked, {.seqlen_q = 140, .seqlen_k = 20, .gap = gap, .give_delta = true, .sinks = {1.0f}}, 1);
        there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged_score, unit_slope);
        auto problem = there.upload();
        there.add_workspace(world::host_checked, problem, backward::workspace_bytes(problem));
        // Twice: the second launch adds to what the first has written.
        const auto launch = [&] {
            backward::launch(world::host_checked, problem);
            backward::launch(world::host_checked, problem);
        };
        const auto found = host::check_launches(launch, {.schedules = schedules_to_run(1000) / 5});
        INFO((found ? found->text() : std::string()));
        CHECK(!found);
        if (gap == 0) continue;  // attention_backward.both.cpp has the mutations of the Hopper kernel
        const host::mutation_score score = host::mutate_launches(launch, {.schedules = schedules_to_run(100)});
        INFO(score.text());
        CHECK(score.total() > 15);
        CHECK(score.killed() == score.total());
    }
}
#endif
