// Attention by ranks that exchange heads for tokens, against attention to all of them in float64.
#include "kernels/whole_attention.hpp"
#include "worlds.hpp"

#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/exchanged_attention.hpp>

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
using imbrex_test::refusal_of;
using imbrex_test::whole_sequence;
using imbrex_test::worlds;

namespace {

constexpr int depth = imbrex_test::whole_depth;
using attention = exchanged_attention<bf16, plain_score, attention_tiles<64>>;

struct rank_tensors {
    buffer<bf16> q, k, v, out;
    world_memory workspace;

    rank_tensors(world where, const head_schedule& schedule, int rank)
        : q(where, elements(schedule, rank, schedule.sizes.heads)),
          k(where, elements(schedule, rank, schedule.sizes.key_heads)),
          v(where, elements(schedule, rank, schedule.sizes.key_heads)),
          out(where, elements(schedule, rank, schedule.sizes.heads), bf16(std::numeric_limits<float>::quiet_NaN())),
          workspace(where, attention::workspace_bytes(schedule, rank)) {}

    exchanged_problem<bf16> problem() {
        return {.q = q.send(), .k = k.send(), .v = v.send(), .out = out.send(), .workspace = workspace.at()};
    }
    static std::size_t elements(const head_schedule& schedule, int rank, int heads) {
        return std::size_t(schedule.sizes.batches) * schedule.tokens_of(rank).count() * heads * depth;
    }
};

void run_case(world where, head_schedule schedule, std::uint64_t seed) {
    schedule.sizes.depth = schedule.sizes.value_depth = depth;
    const int heads = schedule.sizes.heads, key_heads = schedule.sizes.key_heads;
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<whole_sequence> whole;
    for (int i = 0; i < schedule.sizes.batches; ++i) whole.emplace_back(schedule.tokens, heads, key_heads, random);
    std::vector<std::unique_ptr<rank_tensors>> tensors;
    const auto each_row = [&](int rank, const auto& visit) {
        const token_runs tokens = schedule.tokens_of(rank);
        for (int i = 0; i < schedule.sizes.batches * tokens.count(); ++i) {
            visit(i, whole[i / tokens.count()], tokens.position(i % tokens.count()));
        }
    };
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        tensors.push_back(std::make_unique<rank_tensors>(where, schedule, rank));
        each_row(rank, [&](int row, const whole_sequence& from, int token) {
            const auto take = [&](buffer<bf16>& to, const std::vector<bf16>& all, int with) {
                std::copy_n(all.begin() + std::size_t(token) * with * depth, with * depth,
                            to.values.begin() + std::size_t(row) * with * depth);
            };
            take(tensors[rank]->q, from.q, heads);
            take(tensors[rank]->k, from.k, key_heads);
            take(tensors[rank]->v, from.v, key_heads);
        });
    }
    loopback_group group(where, schedule.ranks, {.patience = 60s, .seed = seed});
    run_ranks(group, [&](loopback& link) {
        attention::agree(link, schedule);
        const world_stream stream(where);
        attention::launch(link, schedule, tensors[link.rank()]->problem(), {}, stream.get());
        link.finish(stream.get());
    });
    double worst = 0;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        tensors[rank]->out.fetch();
        each_row(rank, [&](int row, const whole_sequence& from, int token) {
            for (int head = 0; head < heads; ++head) {
                const auto right = imbrex_test::expected(from, schedule.mask, token, head);
                for (int i = 0; i < depth; ++i) {
                    const double error = std::abs(
                        float(tensors[rank]->out.values[(std::size_t(row) * heads + head) * depth + i]) - right.out[i]);
                    worst = std::isnan(error) || error > worst ? error : worst;
                }
            }
        });
    }
    CHECK(worst < 0.025);
}

}  // namespace

TEST_CASE("heads exchanged for tokens give what one device gives") {
    for (const world where : worlds()) {
        std::mt19937 random(4);
        const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
        for (int ranks = 1; ranks <= 8; ++ranks) {
            for (const token_placement placement :
                 {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
                const int key_heads = ranks + from(0, 2);
                const window_mask mask =
                    from(0, 2) > 0 ? as_window(causal_mask{}) : window_mask{from(0, 30), from(0, 9)};
                CAPTURE(name_of(where));
                CAPTURE(ranks);
                CAPTURE(name_of(placement));
                CAPTURE(key_heads);
                run_case(where,
                         {.tokens = from(0, 90),
                          .ranks = ranks,
                          .placement = placement,
                          .mask = mask,
                          .sizes = {.heads = key_heads * from(1, 2), .key_heads = key_heads, .batches = from(1, 2)}},
                         ranks);
            }
        }
    }
}

TEST_CASE("an exchange of heads refuses what it cannot do") {
    for (const world where : worlds()) {
        const auto refusals = [&](const auto& change) {
            loopback_group group(where, 2, {.patience = 20s});
            std::vector<std::string> texts;
            for (const std::exception_ptr& outcome : outcomes_of_ranks(group, [&](loopback& link) {
                     head_schedule schedule{
                         .tokens = 10, .ranks = 2, .sizes = {.heads = 4, .key_heads = 2, .depth = 64}};
                     if (link.rank() == 1) change(schedule);
                     attention::agree(link, schedule);
                 })) {
                texts.push_back(refusal_of([&] {
                    if (outcome) std::rethrow_exception(outcome);
                }));
            }
            return texts;
        };
        for (const std::string& text : refusals([](head_schedule& one) { one.tokens = 11; })) {
            CHECK(text == "tokens: 11 on rank 1, and 10 on rank 0, before step 0; all ranks must name the same");
        }
        const auto refused = refusals([](head_schedule& one) { one.sizes.key_heads = 1; });
        CHECK(refused[0] == "rank 1 was refused its arguments, before step 0");
        CHECK(refused[1] ==
              "ranks: 2; heads are exchanged for tokens, and there are 1 heads of keys: a ring or a mesh takes more "
              "ranks "
              "than that");
        loopback_group group(where, 1);
        loopback link(group, 0);
        const head_schedule one{.tokens = 3, .ranks = 1, .sizes = {.heads = 2, .depth = 64, .value_depth = 64}};
        CHECK(refusal_of([&] { attention::launch(link, one, {}); }) == "q: null; 1 x 3 x 2 x 64 elements are needed");
    }
}
