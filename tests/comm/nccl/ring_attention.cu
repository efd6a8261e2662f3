// Ring attention by processes over NCCL, one of them each time this is started; run_ranks.py starts them. All make the same sequences, keep the
// rows of their own, and compare what they find for them with attention to all in float64.
//
//     imbrex_nccl_ring_attention        returns 0 if all is right, 1 if not, and 77 where there is no GPU
#include "kernels/whole_attention.hpp"

#include <imbrex/comm/nccl_transport.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/exchanged_attention.hpp>
#include <imbrex/kernels/ring_attention.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;
using imbrex_test::whole_sequence;

namespace {

constexpr int depth = imbrex_test::whole_depth, heads = 4, key_heads = 4;

// A rank's rows of a sequence, in the device's memory.
struct own_rows {
    token_runs tokens;
    world_array<bf16> q, k, v, rounded;

    own_rows(const whole_sequence& all, const token_runs& tokens)
        : tokens(tokens),
          q(world::device, elements(heads)),
          k(world::device, elements(key_heads)),
          v(world::device, elements(key_heads)),
          rounded(world::device, elements(heads), bf16(std::numeric_limits<float>::quiet_NaN())) {
        const auto take = [&](world_array<bf16>& to, const std::vector<bf16>& from, int with) {
            for (int row = 0; row < tokens.count(); ++row) {
                std::copy_n(from.begin() + std::size_t(tokens.position(row)) * with * depth, with * depth,
                            to.values.begin() + std::size_t(row) * with * depth);
            }
        };
        take(q, all.q, heads);
        take(k, all.k, key_heads);
        take(v, all.v, key_heads);
    }
    std::size_t elements(int with) const { return std::size_t(tokens.count()) * with * depth; }

    double largest_error(const whole_sequence& all, const window_mask& mask) {
        rounded.fetch();
        double worst = 0;
        for (int row = 0; row < tokens.count(); ++row) {
            for (int head = 0; head < heads; ++head) {
                const auto right = imbrex_test::expected(all, mask, tokens.position(row), head);
                for (int i = 0; i < depth; ++i) {
                    const std::size_t at = (std::size_t(row) * heads + head) * depth + i;
                    const double error = std::abs(float(rounded.values[at]) - right.out[i]);
                    worst = std::isnan(error) || error > worst ? error : worst;
                }
            }
        }
        return worst;
    }
};

double error_of_ring(nccl_transport& link, const whole_sequence& all, token_placement placement, int query_chunks) {
    const sequence_schedule schedule{
        .tokens = all.tokens,
        .ranks = link.ranks(),
        .query_chunks = query_chunks,
        .placement = placement,
        .sizes = {.heads = heads, .key_heads = key_heads, .depth = depth, .value_depth = depth}};
    using attention = ring_attention<bf16, plain_score, attention_tiles<depth>>;
    own_rows mine(all, schedule.tokens_of(link.rank()));
    const ring_plan plan = agreed_plan(link, {schedule});
    const world_stream stream(world::device);
    const world_memory out(world::device, mine.elements(heads) * sizeof(float));
    const world_memory sums(world::device, std::size_t(mine.tokens.count()) * heads * sizeof(float));
    const world_memory workspace(world::device, attention::workspace_bytes(plan));
    attention::launch(link, plan,
                      {.q = mine.q.send(),
                       .k = mine.k.send(),
                       .v = mine.v.send(),
                       .out = out.at<float>(),
                       .log2_sums = sums.at<float>(),
                       .workspace = workspace.at(),
                       .rounded = mine.rounded.send()},
                      stream.get());
    link.finish(stream.get());
    return mine.largest_error(all, schedule.mask);
}

double error_of_exchange(nccl_transport& link, const whole_sequence& all, token_placement placement) {
    const head_schedule schedule{
        .tokens = all.tokens,
        .ranks = link.ranks(),
        .placement = placement,
        .sizes = {.heads = heads, .key_heads = key_heads, .depth = depth, .value_depth = depth}};
    using attention = exchanged_attention<bf16, plain_score, attention_tiles<depth>>;
    own_rows mine(all, schedule.tokens_of(link.rank()));
    attention::agree(link, schedule);
    const world_stream stream(world::device);
    const world_memory workspace(world::device, attention::workspace_bytes(schedule, link.rank()));
    attention::launch(link, schedule,
                      {.q = mine.q.send(),
                       .k = mine.k.send(),
                       .v = mine.v.send(),
                       .out = mine.rounded.send(),
                       .workspace = workspace.at()},
                      {}, stream.get());
    link.finish(stream.get());
    return mine.largest_error(all, schedule.mask);
}

int run() {
    nccl_transport link(read_rank_environment());
    bool right = true;
    const auto tell = [&](const std::string& what, double error) {
        std::printf("rank %d of %d: %s, largest error %.4f\n", link.rank(), link.ranks(), what.c_str(), error);
        right = right && error < 0.025;
    };
    std::mt19937 random(9);
    for (const int tokens : {601, 128, 3}) {
        const whole_sequence all(tokens, heads, key_heads, random);
        for (const token_placement placement :
             {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
            const std::string name = sentence(tokens, " tokens, ", name_of(placement));
            tell(name + ", ring", error_of_ring(link, all, placement, 1));
            if (link.ranks() % 2 == 0) tell(name + ", mesh", error_of_ring(link, all, placement, 2));
            tell(name + ", heads exchanged", error_of_exchange(link, all, placement));
        }
    }
    return right ? 0 : 1;
}

}  // namespace

int main() {
    if (!device_available()) {
        std::printf("skipped: there is no GPU to run ranks on\n");
        return 77;
    }
    try {
        return run();
    } catch (const std::exception& problem) {
        std::printf("%s\n", problem.what());
        return 1;
    }
}
