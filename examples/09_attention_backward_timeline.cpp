// The Hopper kernel of attention_backward without its launcher, and a timeline of its schedule: one block of 128 keys and
// the four query blocks that see them. With a file name as argument, the host world writes a trace, in cycles of a nominal
// Hopper SM. bench/timeline.py draws it.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_backward/hopper.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

using namespace imbrex;

int main(int count, char** words) {
    using kernel = attention_backward_hopper<bf16, 128, 128>;
    constexpr int seqlen_q = 4 * kernel::block_m, seqlen_k = kernel::block_n, head_dim = 128;
    std::vector<bf16> q(seqlen_q * head_dim), d_out(q.size()), k(seqlen_k * head_dim), v(k.size()), d_k(k.size()),
        d_v(k.size());
    for (std::size_t i = 0; i < k.size(); ++i) {
        k[i] = bf16(std::sin(0.37f * float(i % 10007)));
        v[i] = bf16(std::cos(0.11f * float(i % 10009)));
    }
    for (std::size_t i = 0; i < q.size(); ++i) {
        q[i] = bf16(std::sin(0.23f * float(i % 10037)));
        d_out[i] = bf16(0.5f + 0.5f * std::cos(0.19f * float(i % 10039)));
    }

    // What the preprocess kernel writes. This example needs no dQ and no dK, so delta may be 0.
    const int blocks = kernel::workspace::blocks_of(seqlen_q, 1, false);
    std::vector<float> memory(kernel::workspace::bytes_of(blocks) / sizeof(float) + 32);
    const auto address = (reinterpret_cast<std::uintptr_t>(memory.data()) + 127) / 128 * 128;
    const kernel::workspace workspace = kernel::workspace::in(reinterpret_cast<void*>(address), 1, 1, blocks);
    const float scale = 0.125f;
    float* const lse2 = reinterpret_cast<float*>(workspace.lse2);
    for (int query = 0; query < seqlen_q; ++query) {
        double sum = 0;
        for (int key = 0; key < seqlen_k; ++key) {
            double score = 0;
            for (int i = 0; i < head_dim; ++i) {
                score += double(float(q[query * head_dim + i])) * float(k[key * head_dim + i]);
            }
            sum += std::exp(score * scale);
        }
        lse2[query] = float(std::log2(sum));
    }

    const auto view = [](auto& values, int rows) { return batch_sequence_head(values.data(), 1, rows, 1, head_dim); };
    kernel::arguments arguments{};
    arguments.q = make_tma_tensor<kernel::q_tile>(view(q, seqlen_q));
    arguments.k = make_tma_tensor<kernel::k_tile>(view(k, seqlen_k));
    arguments.v = make_tma_tensor<kernel::v_tile>(view(v, seqlen_k));
    arguments.d_out = make_tma_tensor<kernel::d_out_tile>(view(d_out, seqlen_q));
    arguments.d_k_view = view(d_k, seqlen_k);
    arguments.d_v_view = view(d_v, seqlen_k);
    arguments.d_k = make_tma_tensor<kernel::d_k_tile>(arguments.d_k_view, tma_use::store);
    arguments.d_v = make_tma_tensor<kernel::d_v_tile>(arguments.d_v_view, tma_use::store);
    arguments.from = workspace;
    arguments.scale = scale;
    arguments.scheduler = {.batches = 1, .kv_heads = 1, .blocks = 1, .section_heads = 1};
    arguments.lengths = {.seqlen_q = seqlen_q, .seqlen_k = seqlen_k};
    arguments.q_heads_per_kv_head = 1;
    if (count > 1) {
        host::launch<kernel>({1}, arguments, {.trace_file = words[1]});
        std::printf("trace written to %s\n", words[1]);
    } else {
        host::launch<kernel>({1}, arguments);
    }

    // dV = P^T dO, and the probabilities of a query add up to 1: the sum of dV over all keys is that of dO over all queries.
    double worst = 0;
    for (int i = 0; i < head_dim; ++i) {
        double found = 0, expected = 0;
        for (int key = 0; key < seqlen_k; ++key) found += float(d_v[key * head_dim + i]);
        for (int query = 0; query < seqlen_q; ++query) expected += float(d_out[query * head_dim + i]);
        const double error = std::abs(found - expected) / expected;
        worst = error <= worst ? worst : error;
    }
    std::printf("attention backward of %d queries to %d keys: largest relative error of the sum of dV %.2g\n", seqlen_q,
                seqlen_k, worst);
    return worst < 0.01 ? 0 : 1;
}
