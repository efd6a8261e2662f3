// attention_backward with head dims beyond 128, where two warpgroups share 64 keys and two blocks share dQ, with different
// ones for QK and V, and with head_dim 96.
#include <imbrex/hw/host/mutate.hpp>
#include <imbrex/kernels/attention_backward.hpp>

#include "kernels/attention_backward/trial.hpp"
#include "schedules.hpp"

#include <string>
#include <utility>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr attention_backward_options options{.head_dims = {96, attention_head_dims(192, 128), 256}};

template <class Mask>
void check(const backward_case& given, const Mask& mask) {
    check_backward<attention_backward<bf16, options, Mask>, bf16>(given, mask, score_mod::identity{}, unchanged_score,
                                                                  unit_slope);
}

}  // namespace

TEST_CASE("attention_backward: head dims 192/128, 192 and 256, lengths that do not fill blocks, GQA") {
    check({.seqlen_q = 64, .seqlen_k = 64, .head_dim = 192, .head_dim_v = 128}, full_mask{});
    check({.seqlen_q = 1, .seqlen_k = 1, .head_dim = 256}, full_mask{});
    check({.heads = 2, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 200, .head_dim = 192, .head_dim_v = 128},
          causal_mask{});
    check({.batches = 2, .heads = 2, .seqlen_q = 200, .seqlen_k = 70, .head_dim = 256}, causal_mask{});
    // Fewer columns than the kernel's: whole parts of columns may not exist.
    check({.seqlen_q = 70, .seqlen_k = 80, .head_dim = 192}, full_mask{});
    check({.seqlen_q = 70, .seqlen_k = 80, .head_dim = 160, .head_dim_v = 48}, full_mask{});
    check({.seqlen_q = 70, .seqlen_k = 80, .head_dim = 64, .head_dim_v = 208}, causal_mask{});
}

TEST_CASE("attention_backward: head_dim 96") {
    check({.seqlen_q = 150, .seqlen_k = 130, .head_dim = 96}, full_mask{});
    check({.heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 200, .head_dim = 80, .head_dim_v = 96},
          causal_mask{});
}

TEST_CASE("attention_backward: head_dim 256, varlen and seqused_k") {
    backward_case varlen{.heads = 2, .kv_heads = 1, .seqlen_q = 200, .seqlen_k = 230, .head_dim = 256};
    varlen.starts_q = {0, 70, 70, 190};
    varlen.starts_k = {0, 100, 130, 230};
    check(varlen, causal_mask{});
    backward_case padded{.batches = 2, .seqlen_q = 70, .seqlen_k = 150, .head_dim = 192, .head_dim_v = 128};
    padded.used_k = {140, 0};
    check(padded, causal_mask{});
    padded.head_dim = padded.head_dim_v = 256;
    padded.used_k = {50, 128};  // of the first cluster, one block has no keys
    check(padded, causal_mask{});
}

TEST_CASE("attention_backward: head dims whose dQ divides into one tile or five panels, and a wide V") {
    using backward =
        attention_backward<bf16, attention_backward_options{.head_dims = {attention_head_dims(128, 256), 160}}>;
    for (const auto& [qk, v] : {std::pair{128, 256}, std::pair{160, 160}}) {
        const backward_case given{.seqlen_q = 150, .seqlen_k = 80, .head_dim = qk, .head_dim_v = v};
        check_backward<backward, bf16>(given, full_mask{}, score_mod::identity{}, unchanged_score, unit_slope);
    }
}

#if !defined(__CUDACC__)
namespace {

// Silent under many schedules, and every mutation is detected.
template <class Backward>
void check_synchronisation_of(const backward_case& given) {
    backward_trial<bf16> there(world::host_checked, given, 1);
    there.run_forward([](const attention_extents&, int, int) { return true; }, unchanged_score, unit_slope);
    auto problem = there.upload();
    there.add_workspace(world::host_checked, problem, Backward::workspace_bytes(problem));
    const auto found = Backward::check(problem, {.schedules = schedules_to_run(1000)});
    INFO((found ? found->text() : std::string()));
    CHECK(!found);
    const auto launch = [&] { Backward::launch(world::host_checked, problem); };
    const host::mutation_score score = host::mutate_launches(launch, {.schedules = schedules_to_run(100)});
    INFO(score.text());
    CHECK(score.total() > 60);
    CHECK(score.killed() == score.total());
}

}  // namespace

TEST_CASE("attention_backward: head_dim 192/128 is silent under many schedules, and every mutation is detected") {
    using backward = attention_backward<bf16, attention_backward_options{.head_dims = {attention_head_dims(192, 128)}}>;
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 230, .seqlen_k = 150};
    given.head_dim = 192;
    given.head_dim_v = 128;
    given.starts_q = {0, 150, 230};  // the last block of each sequence is not full
    given.starts_k = {0, 100, 150};
    check_synchronisation_of<backward>(given);
}

TEST_CASE("attention_backward: the clusters of head_dim 256 are silent, and every mutation is detected") {
    using backward = attention_backward<bf16, attention_backward_options{.head_dims = {256}}>;
    backward_case given{.heads = 2, .kv_heads = 1, .seqlen_q = 230, .seqlen_k = 150};
    given.head_dim = 256;
    given.starts_q = {0, 150, 230};
    given.starts_k = {0, 100, 150};  // one block of the second cluster has no keys
    check_synchronisation_of<backward>(given);
}
#endif
