// attention_backward_options::deterministic on Hopper: key blocks add to dQ in turn. Gradients against double, the same
// bits in every run, masks whose key blocks skip query blocks, and schedules of the checker.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_backward_options in_turns{
    .head_dims = {64, 128}, .targets = kernel_targets::hopper, .deterministic = true};

template <class Mask>
void check(const backward_case& given, const Mask& mask) {
    check_backward<attention_backward<bf16, in_turns, Mask>, bf16>(given, mask, score_mod::identity{}, unchanged_score,
                                                                   unit_slope);
}

}  // namespace

TEST_CASE("deterministic attention_backward: lengths that do not fill blocks, GQA, varlen") {
    check({.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 400}, causal_mask{});
    check({.heads = 2, .seqlen_q = 300, .seqlen_k = 300, .head_dim = 128}, full_mask{});
    check({.seqlen_q = 0, .seqlen_k = 200}, causal_mask{});
    backward_case varlen{.heads = 2, .seqlen_q = 400, .seqlen_k = 500};
    varlen.starts_q = {0, 130, 130, 390};
    varlen.starts_k = {0, 70, 200, 490};
    check(varlen, causal_mask{});
}

TEST_CASE("deterministic attention_backward: query blocks that some key blocks skip") {
    check({.seqlen_q = 600, .seqlen_k = 620}, window_mask{70, 10});
    check({.seqlen_q = 300, .seqlen_k = 600}, chunked_mask{100});
    check({.seqlen_q = 200, .seqlen_k = 400}, two_of_three_mask{true});
}

TEST_CASE("deterministic attention_backward: the same bits in every run") {
    using backward = attention_backward<bf16, in_turns, causal_mask>;
    const backward_case given{.batches = 2, .heads = 3, .seqlen_q = 700, .seqlen_k = 1200};
    for (const world where : worlds()) {
        if (where == world::host_checked) continue;
        CAPTURE(name_of(where));
        backward_trial<bf16> there(where, given, 7);
        there.run_forward([](const attention_extents& s, int query, int key) { return key <= query + s.offset(); },
                          unchanged_score, unit_slope);
        auto problem = there.upload();
        there.add_workspace(where, problem, backward::workspace_bytes(problem));
        std::vector<bf16> first;
        for (int run = 0; run < (where == world::device ? 20 : 3); ++run) {
            backward::launch(where, problem);
            there.d_q.download();
            if (run == 0) first = there.d_q.values;
            bool same = true;
            for (std::size_t i = 0; i < first.size(); ++i) {
                same = same && float(first[i]) == float(there.d_q.values[i]);
            }
            CHECK(same);
        }
    }
}

#if !defined(__CUDACC__)
TEST_CASE("deterministic attention_backward: silent under many schedules, and every mutation is detected") {
    using backward = attention_backward<bf16, in_turns, causal_mask>;
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 290, .seqlen_k = 400};
    given.starts_q = {0, 210, 290};  // the last block of each sequence is not full
    given.starts_k = {0, 200, 400};
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
