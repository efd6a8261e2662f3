// The attention kernel without its launcher, and a timeline of its schedule: two work tiles of a causal attention, four
// key tiles each, on one block of the host world. With a file name as argument, the host world writes a trace: when
// each scope computed, copied and waited, in cycles of a nominal Hopper SM. bench/timeline.py draws it.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention/hopper.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

int main(int count, char** words) {
    using kernel = attention_hopper<bf16, 128, 128, causal_mask>;
    constexpr int seqlen_q = 256, seqlen_k = 512, head_dim = 128;
    std::vector<bf16> q(seqlen_q * head_dim), k(seqlen_k * head_dim), v(seqlen_k * head_dim), out(seqlen_q * head_dim);
    for (std::size_t i = 0; i < k.size(); ++i) {
        k[i] = bf16(std::sin(0.37f * float(i % 10007)));
        v[i] = bf16(std::cos(0.11f * float(i % 10009)));
    }
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = bf16(std::sin(0.23f * float(i % 10037)));

    const auto view = [](std::vector<bf16>& values, int rows) {
        return batch_sequence_head(values.data(), 1, rows, 1, head_dim);
    };
    kernel::arguments arguments{};
    arguments.q = make_tma_tensor<kernel::q_tile>(view(q, seqlen_q));
    arguments.k = make_tma_tensor<kernel::k_tile>(view(k, seqlen_k));
    arguments.v = make_tma_tensor<kernel::v_tile>(view(v, seqlen_k));
    arguments.out_view = view(out, seqlen_q);
    arguments.out = make_tma_tensor<kernel::out_tile>(arguments.out_view, tma_use::store);
    arguments.scale = 0.125f;
    arguments.scale_log2 = scale_log2_after(arguments.score, arguments.scale);
    arguments.scheduler = {.batches = 1, .heads = 1, .blocks = seqlen_q / kernel::block_m, .l2_sections = 1};
    arguments.lengths = {.seqlen_q = seqlen_q, .seqlen_k = seqlen_k};
    arguments.q_heads_per_kv_head = 1;
    if (count > 1) {
        host::launch<kernel>({1}, arguments, {.trace_file = words[1]});
        std::printf("trace written to %s\n", words[1]);
    } else {
        host::launch<kernel>({1}, arguments);
    }

    // The last query sees every key.
    double worst = 0;
    std::vector<double> expected(head_dim);
    double sum = 0;
    for (int key = 0; key < seqlen_k; ++key) {
        double score = 0;
        for (int i = 0; i < head_dim; ++i)
            score += double(float(q[(seqlen_q - 1) * head_dim + i])) * float(k[key * head_dim + i]);
        const double weight = std::exp(score * 0.125);
        sum += weight;
        for (int i = 0; i < head_dim; ++i) expected[i] += weight * float(v[key * head_dim + i]);
    }
    for (int i = 0; i < head_dim; ++i) {
        const double error = std::abs(expected[i] / sum - float(out[(seqlen_q - 1) * head_dim + i]));
        worst = error <= worst ? worst : error;
    }
    std::printf("attention of %d queries to %d keys: largest error of the last one %.2g\n", seqlen_q, seqlen_k, worst);
    return worst < 0.02 ? 0 : 1;
}
