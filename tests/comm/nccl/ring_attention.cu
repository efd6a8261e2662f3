// Ring attention over NCCL: one process is one rank; run_ranks.py starts them. All ranks generate the same sequences,
// keep their own rows, and compare their outputs with single-device attention in float64.
//
//     imbrex_nccl_ring_attention        returns 0 on success, 1 on failure, and 77 without a GPU
#include "kernels/whole_attention.hpp"

#include <imbrex/comm/nccl_transport.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/ring_attention.hpp>
#include <imbrex/kernels/ulysses_attention.hpp>

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

constexpr int head_dim = imbrex_test::whole_head_dim, heads = 4, kv_heads = 4;

// A rank's rows of a sequence, in device memory.
struct own_rows {
    token_ranges tokens;
    world_array<bf16> q, k, v, rounded;

    own_rows(const whole_sequence& all, const token_ranges& tokens)
        : tokens(tokens),
          q(world::device, elements(heads)),
          k(world::device, elements(kv_heads)),
          v(world::device, elements(kv_heads)),
          rounded(world::device, elements(heads), bf16(std::numeric_limits<float>::quiet_NaN())) {
        const auto take = [&](world_array<bf16>& to, const std::vector<bf16>& from, int with) {
            for (int row = 0; row < tokens.count(); ++row) {
                std::copy_n(from.begin() + std::size_t(tokens.position(row)) * with * head_dim, with * head_dim,
                            to.values.begin() + std::size_t(row) * with * head_dim);
            }
        };
        take(q, all.q, heads);
        take(k, all.k, kv_heads);
        take(v, all.v, kv_heads);
    }
    std::size_t elements(int with) const { return std::size_t(tokens.count()) * with * head_dim; }

    double largest_error(const whole_sequence& all, const window_mask& mask) {
        rounded.download();
        double worst = 0;
        for (int row = 0; row < tokens.count(); ++row) {
            for (int head = 0; head < heads; ++head) {
                const auto right = imbrex_test::expected(all, mask, tokens.position(row), head);
                for (int i = 0; i < head_dim; ++i) {
                    const std::size_t at = (std::size_t(row) * heads + head) * head_dim + i;
                    const double error = std::abs(float(rounded.values[at]) - right.out[i]);
                    worst = std::isnan(error) || error > worst ? error : worst;
                }
            }
        }
        return worst;
    }
};

double error_of_ring(nccl_transport& comm, const whole_sequence& all, token_placement placement, int q_chunks) {
    const ring_schedule schedule{
        .tokens = all.tokens,
        .ranks = comm.ranks(),
        .q_chunks = q_chunks,
        .placement = placement,
        .sizes = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .head_dim_v = head_dim}};
    using attention = ring_attention<bf16, attention_head_dim_set{head_dim}>;
    own_rows mine(all, schedule.tokens_of(comm.rank()));
    const ring_plan plan = make_ring_plan(comm, {schedule});
    const world_stream stream(world::device);
    const world_memory out(world::device, mine.elements(heads) * sizeof(float));
    const world_memory sums(world::device, std::size_t(mine.tokens.count()) * heads * sizeof(float));
    const world_memory workspace(world::device, attention::workspace_bytes(plan));
    attention::launch(comm, plan,
                      {.q = mine.q.upload(),
                       .k = mine.k.upload(),
                       .v = mine.v.upload(),
                       .out = out.at<float>(),
                       .lse2 = sums.at<float>(),
                       .workspace = workspace.at(),
                       .rounded = mine.rounded.upload()},
                      stream.get());
    comm.synchronise(stream.get());
    return mine.largest_error(all, schedule.mask);
}

double error_of_ulysses(nccl_transport& comm, const whole_sequence& all, token_placement placement) {
    const ulysses_schedule schedule{
        .tokens = all.tokens,
        .ranks = comm.ranks(),
        .placement = placement,
        .sizes = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .head_dim_v = head_dim}};
    using attention = ulysses_attention<bf16, attention_head_dim_set{head_dim}>;
    own_rows mine(all, schedule.tokens_of(comm.rank()));
    attention::require_same_on_all_ranks(comm, schedule);
    const world_stream stream(world::device);
    const world_memory workspace(world::device, attention::workspace_bytes(schedule, comm.rank()));
    attention::launch(comm, schedule,
                      {.q = mine.q.upload(),
                       .k = mine.k.upload(),
                       .v = mine.v.upload(),
                       .out = mine.rounded.upload(),
                       .workspace = workspace.at()},
                      {}, stream.get());
    comm.synchronise(stream.get());
    return mine.largest_error(all, schedule.mask);
}

int run() {
    nccl_transport comm(read_rank_environment());
    bool right = true;
    const auto print_error = [&](const std::string& what, double error) {
        std::printf("rank %d of %d: %s, max error %.4f\n", comm.rank(), comm.ranks(), what.c_str(), error);
        right = right && error < 0.025;
    };
    std::mt19937 random(9);
    for (const int tokens : {601, 128, 3}) {
        const whole_sequence all(tokens, heads, kv_heads, random);
        for (const token_placement placement :
             {token_placement::contiguous, token_placement::zigzag, token_placement::striped}) {
            const std::string name = str_cat(tokens, " tokens, ", name_of(placement));
            print_error(name + ", ring", error_of_ring(comm, all, placement, 1));
            if (comm.ranks() % 2 == 0) print_error(name + ", mesh", error_of_ring(comm, all, placement, 2));
            print_error(name + ", Ulysses", error_of_ulysses(comm, all, placement));
        }
    }
    return right ? 0 : 1;
}

}  // namespace

int main() {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 77;
    }
    try {
        return run();
    } catch (const std::exception& problem) {
        std::printf("%s\n", problem.what());
        return 1;
    }
}
