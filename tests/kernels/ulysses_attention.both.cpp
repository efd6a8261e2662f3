// Ulysses attention against attention on one rank in float64.
#include "kernels/ulysses_trial.hpp"
#include "kernels/whole_attention.hpp"
#include "synchronisation.hpp"
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/ulysses_attention.hpp>

#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using namespace std::chrono_literals;
using imbrex_test::buffer;
using imbrex_test::each_row;
using imbrex_test::error_message_of;
using imbrex_test::row_value_at;
using imbrex_test::whole_sequence;
using imbrex_test::worlds;

namespace {

constexpr int head_dim = imbrex_test::whole_head_dim;
using attention = ulysses_attention<bf16, attention_head_dim_set{64}>;

struct rank_tensors {
    buffer<bf16> q, k, v, out;
    buffer<float> lse2;
    world_memory workspace;

    rank_tensors(world where, const ulysses_schedule& schedule, int rank)
        : q(where, elements(schedule, rank, schedule.sizes.heads)),
          k(where, elements(schedule, rank, schedule.sizes.kv_heads)),
          v(where, elements(schedule, rank, schedule.sizes.kv_heads)),
          out(where, elements(schedule, rank, schedule.sizes.heads), bf16(std::numeric_limits<float>::quiet_NaN())),
          lse2(where, out.values.size() / head_dim, NAN),
          workspace(where, attention::workspace_bytes(schedule, rank)) {}

    ulysses_problem<bf16> problem(bool with_lse2 = true) {
        return {.q = q.upload(),
                .k = k.upload(),
                .v = v.upload(),
                .out = out.upload(),
                .lse2 = with_lse2 ? lse2.upload() : nullptr,
                .workspace = workspace.at()};
    }
    static std::size_t elements(const ulysses_schedule& schedule, int rank, int heads) {
        return std::size_t(schedule.sizes.batches) * schedule.tokens_of(rank).count() * heads * head_dim;
    }
};

void run_case(world where, ulysses_schedule schedule, std::uint64_t seed, bool with_lse2 = true) {
    schedule.sizes.head_dim = schedule.sizes.head_dim_v = head_dim;
    const int heads = schedule.sizes.heads, kv_heads = schedule.sizes.kv_heads;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<whole_sequence> whole;
    for (int i = 0; i < schedule.sizes.batches; ++i) whole.emplace_back(schedule.tokens, heads, kv_heads, random);
    std::vector<std::unique_ptr<rank_tensors>> tensors;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        tensors.push_back(std::make_unique<rank_tensors>(where, schedule, rank));
        each_row(schedule, rank, [&](int row, int number, int token) {
            const whole_sequence& from = whole[number];
            const auto take = [&](buffer<bf16>& to, const std::vector<bf16>& all, int with) {
                std::copy_n(all.begin() + std::size_t(token) * with * head_dim, with * head_dim,
                            to.values.begin() + std::size_t(row) * with * head_dim);
            };
            take(tensors[rank]->q, from.q, heads);
            take(tensors[rank]->k, from.k, kv_heads);
            take(tensors[rank]->v, from.v, kv_heads);
        });
    }
    loopback_group group(where, schedule.ranks, {.timeout = 60s, .seed = seed});
    run_ranks(group, [&](loopback& comm) {
        attention::require_same_on_all_ranks(comm, schedule);
        const world_stream stream(where);
        attention::launch(comm, schedule, tensors[comm.rank()]->problem(with_lse2), {}, stream.get());
        comm.synchronise(stream.get());
    });
    double worst = 0, worst_lse2 = 0;
    const auto add = [](double& worst, double error) { worst = std::isnan(error) || error > worst ? error : worst; };
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        rank_tensors& mine = *tensors[rank];
        mine.out.download();
        mine.lse2.download();
        each_row(schedule, rank, [&](int row, int number, int token) {
            for (int head = 0; head < heads; ++head) {
                const auto right = imbrex_test::expected(whole[number], schedule.mask, token, head);
                const bf16* const out = &mine.out.values[(std::size_t(row) * heads + head) * head_dim];
                for (int i = 0; i < head_dim; ++i) add(worst, std::abs(float(out[i]) - right.out[i]));
                const float lse2 = mine.lse2.values[row_value_at(schedule, rank, head, row)];
                if (with_lse2) add(worst_lse2, std::abs(lse2 - right.lse2));
            }
        });
    }
    CHECK(worst < 0.025);
    CHECK(worst_lse2 < 0.002);
}

}  // namespace

TEST_CASE("Ulysses attention matches attention on one rank") {
    for (const world where : worlds()) {
        std::mt19937 random(4);
        const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                const int kv_heads = ranks + from(0, 2);
                const window_mask mask =
                    from(0, 2) > 0 ? as_window(causal_mask{}) : window_mask{from(0, 30), from(0, 9)};
                CAPTURE(name_of(where));
                CAPTURE(ranks);
                CAPTURE(name_of(placement));
                CAPTURE(kv_heads);
                run_case(where,
                         {.tokens = from(0, 150),
                          .ranks = ranks,
                          .placement = placement,
                          .mask = mask,
                          .sizes = {.heads = kv_heads * from(1, 2), .kv_heads = kv_heads, .batches = from(1, 2)}},
                         ranks, ranks % 4 != 0);
            }
        }
    }
}

TEST_CASE("Ulysses attention rejects invalid arguments") {
    for (const world where : worlds()) {
        const auto refusals = [&](const auto& change) {
            loopback_group group(where, 2, {.timeout = 20s});
            std::vector<std::string> texts;
            for (const std::exception_ptr& outcome : run_ranks_catching(group, [&](loopback& comm) {
                     ulysses_schedule schedule{
                         .tokens = 10, .ranks = 2, .sizes = {.heads = 4, .kv_heads = 2, .head_dim = 64}};
                     if (comm.rank() == 1) change(schedule);
                     attention::require_same_on_all_ranks(comm, schedule);
                 })) {
                texts.push_back(error_message_of([&] {
                    if (outcome) std::rethrow_exception(outcome);
                }));
            }
            return texts;
        };
        for (const std::string& text : refusals([](ulysses_schedule& one) { one.tokens = 11; })) {
            CHECK(text == "tokens: 11 on rank 1, and 10 on rank 0, before step 0; must be the same on all ranks");
        }
        const auto refused = refusals([](ulysses_schedule& one) { one.sizes.kv_heads = 1; });
        CHECK(refused[0] == "rank 1 has invalid arguments, before step 0");
        CHECK(
            refused[1] ==
            "ranks: 2; Ulysses allows at most one rank per KV head, and there are 1 KV heads; use a ring or a mesh for "
            "more ranks");
        loopback_group group(where, 1);
        loopback comm(group, 0);
        const ulysses_schedule one{.tokens = 3, .ranks = 1, .sizes = {.heads = 2, .head_dim = 64, .head_dim_v = 64}};
        CHECK(error_message_of([&] { attention::launch(comm, one, {}); }) ==
              "q: null; 1 x 3 x 2 x 64 elements are needed");
        ulysses_schedule other = one;
        other.ranks = other.sizes.kv_heads = 2;
        CHECK(error_message_of([&] { attention::launch(comm, other, {}); }) == "ranks: 2; the transport has 1");
    }
}

#if !defined(__CUDACC__)
TEST_CASE("check of Ulysses attention") {
    const ulysses_schedule schedule{
        .tokens = 40, .ranks = 2, .sizes = {.heads = 4, .kv_heads = 2, .head_dim = head_dim, .head_dim_v = head_dim}};
    std::vector<std::unique_ptr<rank_tensors>> tensors;
    std::vector<ulysses_problem<bf16>> problems;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        tensors.push_back(std::make_unique<rank_tensors>(world::host_checked, schedule, rank));
        problems.push_back(tensors.back()->problem());
    }
    CHECK(imbrex_test::text_of(attention::check(problems, {.schedules = 3}, schedule)) == "");
    problems[1].workspace = nullptr;
    CHECK(error_message_of([&] { attention::check(problems, {}, schedule); }).find("workspace: ") == 0);
}
#endif
