// What one schedule of a checked kernel costs, with and without the history of global memory: small problems, such as a
// test checks, one thread. Prints the least CPU time of several rounds as rows of a JSON table.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_backward.hpp>
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/gemm.hpp>
#include <imbrex/kernels/paged_decode.hpp>
#include <imbrex/kernels/sample.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

constexpr int rounds = 25, schedules = 8;
constexpr world where = world::host_checked;

double milliseconds_of_a_schedule(const std::function<void()>& work, bool track_global_memory) {
    host::check_summary summary;
    const std::clock_t begin = std::clock();
    const auto found = host::check_launches(
        work, {.schedules = schedules, .track_global_memory = track_global_memory, .summary = &summary});
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (found) std::puts(found->text().c_str());
    return 1000 * seconds / summary.schedules;
}

// The two variants alternate.
void measure(const std::string& name, const std::function<void()>& work) {
    double without = 1e9, with = 1e9;
    for (int i = 0; i < rounds; ++i) {
        without = std::min(without, milliseconds_of_a_schedule(work, false));
        with = std::min(with, milliseconds_of_a_schedule(work, true));
    }
    std::printf("[\"%s\", \"%.2f ms\", \"%.2f ms\"]\n", name.c_str(), without, with);
}

std::vector<bf16> numbers(std::size_t count) {
    std::vector<bf16> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = bf16(static_cast<float>(i * 37 % 101) / 50.0f - 1.0f);
    return values;
}

void measure_attention() {
    constexpr int queries = 256, keys = 512, head_dim = 128;
    const std::vector<bf16> q = numbers(queries * head_dim), k = numbers(keys * head_dim), v = numbers(keys * head_dim);
    std::vector<bf16> out(q.size());
    const auto view = [](auto* values, int rows) { return batch_sequence_head(values, 1, rows, 1, head_dim); };
    measure("attention, Hopper kernel, head_dim 128, 256 queries, 512 keys", [&] {
        attention_forward<bf16, attention_options{.head_dims = {head_dim}}>::launch(where,
                                                                                    {.q = view(q.data(), queries),
                                                                                     .k = view(k.data(), keys),
                                                                                     .v = view(v.data(), keys),
                                                                                     .out = view(out.data(), queries)});
    });
}

void measure_gemm() {
    constexpr int m = 256, n = 512, k = 512;
    const std::vector<bf16> a = numbers(m * k), b = numbers(n * k);
    std::vector<bf16> out(m * n);
    measure("GEMM, Hopper kernel, 256 x 512 x 512", [&] {
        gemm<bf16, bf16>::launch(where, {m, n, k, {a.data()}, {b.data()}, {out.data()}});
    });
}

void measure_paged_decode() {
    constexpr int sequences = 4, heads = 8, kv_heads = 2, head_dim = 128, page = 64, pages_each = 8;
    const std::vector<bf16> q = numbers(sequences * heads * head_dim);
    const std::vector<bf16> cache = numbers(sequences * pages_each * page * kv_heads * head_dim);
    std::vector<bf16> out(q.size());
    std::vector<int> table(sequences * pages_each), lengths(sequences, pages_each * page);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
    attention_problem<bf16> p;
    p.q = batch_sequence_head(q.data(), sequences, 1, heads, head_dim);
    p.k = p.v = batch_sequence_head(cache.data(), sequences * pages_each, page, kv_heads, head_dim);
    p.out = batch_sequence_head(out.data(), sequences, 1, heads, head_dim);
    p.seqused_k = lengths.data();
    p.paged_kv = {table.data(), pages_each};
    using decode = paged_decode<bf16, decode_config{.head_dims = {head_dim}}>;
    std::vector<int> workspace(decode::workspace_bytes(where, p) / sizeof(int));
    decode_options options;
    options.workspace = workspace.data();
    options.kernel = decode_kernel_kind::hopper;
    measure("paged decode, Hopper kernel, head_dim 128, 4 sequences of 512 keys", [&] {
        std::fill(workspace.begin(), workspace.end(), 0);
        decode::launch(where, p, options);
    });
}

void measure_attention_backward() {
    constexpr int length = 256, head_dim = 64;
    const std::vector<bf16> in = numbers(length * head_dim);
    std::vector<bf16> d_q(in.size()), d_k(in.size()), d_v(in.size());
    std::vector<float> lse2(length, 8.0f);
    const auto view = [](auto* values) { return batch_sequence_head(values, 1, length, 1, head_dim); };
    using backward = attention_backward<bf16, attention_backward_options{.head_dims = {head_dim}}, causal_mask>;
    attention_backward_problem<bf16> p{};
    p.q = p.k = p.v = p.out = p.d_out = view(in.data());
    p.d_q = view(d_q.data());
    p.d_k = view(d_k.data());
    p.d_v = view(d_v.data());
    p.lse2 = batch_head_rows(lse2.data(), 1, length);
    p.workspace_bytes = backward::workspace_bytes(p);
    struct alignas(128) line {
        unsigned char bytes[128];
    };
    std::vector<line> workspace(p.workspace_bytes / sizeof(line) + 1);
    p.workspace = workspace.data();
    measure("attention backward, three kernels, head_dim 64, causal, 256 queries and keys",
            [&] { backward::launch(where, p); });
}

void measure_sampling() {
    constexpr int rows = 4, vocabulary = 8192;
    std::vector<float> logits(rows * vocabulary);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 10007) / 1000.0f;
    const std::vector<sample_options> options(rows, {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f});
    std::vector<int> tokens(rows);
    measure("sampling, top-k and top-p, 4 rows of 8,192 logits", [&] {
        sample_tokens<float>::launch(where, {.logits = as_rows<const float>(logits.data(), rows, vocabulary),
                                             .options = options.data(),
                                             .tokens = tokens.data()});
    });
}

}  // namespace

int main() {
    measure_attention();
    measure_gemm();
    measure_paged_decode();
    measure_attention_backward();
    measure_sampling();
}
