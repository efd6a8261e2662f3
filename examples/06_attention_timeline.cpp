// The attention kernel itself, without its launcher, and a picture of its schedule. Two pieces of work of a causal attention, four
// tiles of keys each, on one block of the host world. Run with a file name, the host world writes a trace there: who computed,
// copied and waited when, in cycles of a nominal Hopper. bench/timeline.py draws it.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention/hopper.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

int main(int count, char** words) {
    using kernel = attention_hopper<bf16, 128, 128, causal_mask>;
    constexpr int queries = 256, keys = 512, depth = 128;
    std::vector<bf16> q(queries * depth), k(keys * depth), v(keys * depth), out(queries * depth);
    for (std::size_t i = 0; i < k.size(); ++i) {
        k[i] = bf16(std::sin(0.37f * float(i % 10007)));
        v[i] = bf16(std::cos(0.11f * float(i % 10009)));
    }
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = bf16(std::sin(0.23f * float(i % 10037)));

    const auto view = [](std::vector<bf16>& values, int rows) {
        return batch_sequence_head(values.data(), 1, rows, 1, depth);
    };
    kernel::arguments arguments{};
    arguments.q = tensor_of<kernel::q_tile>(view(q, queries));
    arguments.k = tensor_of<kernel::k_tile>(view(k, keys));
    arguments.v = tensor_of<kernel::v_tile>(view(v, keys));
    arguments.out_view = view(out, queries);
    arguments.out = tensor_of<kernel::out_tile>(arguments.out_view, tensor_use::store);
    arguments.scale = 0.125f;
    arguments.factor = factor_after(arguments.score, arguments.scale);
    arguments.order = {.batches = 1, .heads = 1, .blocks = queries / kernel::rows, .sections = 1};
    arguments.lengths = {.queries = queries, .keys = keys};
    arguments.heads_per_key_head = 1;
    if (count > 1) {
        host::launch<kernel>({1}, arguments, {.trace_file = words[1]});
        std::printf("trace written to %s\n", words[1]);
    } else {
        host::launch<kernel>({1}, arguments);
    }

    // The last query sees every key.
    double worst = 0;
    std::vector<double> expected(depth);
    double sum = 0;
    for (int key = 0; key < keys; ++key) {
        double score = 0;
        for (int i = 0; i < depth; ++i)
            score += double(float(q[(queries - 1) * depth + i])) * float(k[key * depth + i]);
        const double weight = std::exp(score * 0.125);
        sum += weight;
        for (int i = 0; i < depth; ++i) expected[i] += weight * float(v[key * depth + i]);
    }
    for (int i = 0; i < depth; ++i) {
        const double error = std::abs(expected[i] / sum - float(out[(queries - 1) * depth + i]));
        worst = error <= worst ? worst : error;
    }
    std::printf("attention of %d queries to %d keys: largest error of the last one %.2g\n", queries, keys, worst);
    return worst < 0.02 ? 0 : 1;
}
