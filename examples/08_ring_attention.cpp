// Ring attention on four ranks: each holds a quarter of a sequence, distributed for equal causal work. K and V rotate
// while the ranks compute. Here ranks are threads, with a stream each on a GPU; with comm/nccl_transport.hpp they are
// processes of a cluster, and nothing else changes.
#include <imbrex/comm/loopback.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>
#include <imbrex/kernels/ring_attention.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

namespace {

constexpr int tokens = 1000, ranks = 4, heads = 2, head_dim = 64;

// Arbitrary test data: element i of head h of a token.
float number(int what, int token, int head, int i) {
    return std::sin(1.3f * float(what + 1) * float(token + 1) + 0.7f * float(head) +
                    0.37f * float((i + 1) * (what + 2)));
}

}  // namespace

int main() {
    const world where = device_available() ? world::device : world::host;
    const ring_schedule schedule{
        .tokens = tokens,
        .ranks = ranks,
        .placement = token_placement::zigzag,
        .sizes = {.heads = heads, .kv_heads = heads, .head_dim = head_dim, .head_dim_v = head_dim}};
    std::vector<float> first_of_each(tokens);  // element 0 of head 0 of each output

    loopback_group group(where, ranks);
    run_ranks(group, [&](loopback& comm) {
        using attention = ring_attention<bf16, attention_head_dim_set{head_dim}>;
        const ring_plan plan = make_ring_plan(comm, {schedule});
        const token_ranges mine = schedule.tokens_of(comm.rank());
        const int elements = mine.count() * heads * head_dim;
        world_array<bf16> q(where, elements), k(where, elements), v(where, elements);
        for (int i = 0; i < elements; ++i) {
            const int token = mine.position(i / (heads * head_dim)), head = i / head_dim % heads;
            q.values[i] = bf16(number(0, token, head, i % head_dim));
            k.values[i] = bf16(number(1, token, head, i % head_dim));
            v.values[i] = bf16(number(2, token, head, i % head_dim));
        }
        world_array<float> out(where, elements), lse2(where, mine.count() * heads);
        const world_memory workspace(where, attention::workspace_bytes(plan));
        const world_stream stream(where);
        attention::launch(comm, plan,
                          {.q = q.upload(),
                           .k = k.upload(),
                           .v = v.upload(),
                           .out = out.upload(),
                           .lse2 = lse2.upload(),
                           .workspace = workspace.at()},
                          stream.get());
        comm.synchronise(stream.get());  // throws if a rank has died, and names the rank and the step
        out.download();
        for (int row = 0; row < mine.count(); ++row) {
            first_of_each[mine.position(row)] = out.values[row * heads * head_dim];
        }
    });

    // Each token sees itself and those before it, on whichever rank they are.
    double worst = 0;
    for (int token = 0; token < tokens; token += 37) {
        double sum = 0, expected = 0;
        for (int key = 0; key <= token; ++key) {
            double score = 0;
            for (int i = 0; i < head_dim; ++i) {
                score += double(float(bf16(number(0, token, 0, i)))) * float(bf16(number(1, key, 0, i)));
            }
            const double weight = std::exp(score / std::sqrt(double(head_dim)));
            sum += weight;
            expected += weight * float(bf16(number(2, key, 0, 0)));
        }
        worst = std::fmax(worst, std::abs(expected / sum - first_of_each[token]));
    }
    std::printf("attention of %d tokens on %d ranks (%s): largest error %.2g\n", tokens, ranks, name_of(where).c_str(),
                worst);
    return worst < 0.02 ? 0 : 1;
}
