// SIMT paged attention in the host world without checks: single tokens with contexts of 100 and 1,000 keys, batches of
// sequences, and prompts, with float and bf16 KV caches.
#include <imbrex/kernels/simt_paged_attention.hpp>

#define ANKERL_NANOBENCH_IMPLEMENT
#include <nanobench.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace imbrex;

namespace {

struct shape {
    int heads = 14, kv_heads = 2, head_dim = 64;
    int sequences = 1, tokens = 1, keys = 1000;  // per sequence
    int page_size = 64;
};

template <class Cache>
void measure(const std::string& name, const shape& s) {
    const int per_sequence = (s.keys + s.page_size - 1) / s.page_size, pages = per_sequence * s.sequences;
    std::vector<float> q(static_cast<std::size_t>(s.sequences) * s.tokens * s.heads * s.head_dim), out(q.size(), NAN);
    std::vector<Cache> k(static_cast<std::size_t>(pages) * s.page_size * s.kv_heads * s.head_dim), v(k.size());
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = std::sin(0.3f * static_cast<float>(i));
    for (std::size_t i = 0; i < k.size(); ++i) {
        k[i] = Cache(std::sin(0.7f * static_cast<float>(i)));
        v[i] = Cache(std::cos(1.1f * static_cast<float>(i)));
    }
    std::vector<int> table(static_cast<std::size_t>(pages)), lengths(s.sequences, s.keys), starts(s.sequences + 1);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    for (int i = 0; i <= s.sequences; ++i) starts[i] = i * s.tokens;

    using attend = simt_paged_attention<float, head_dim_set{64, 128}, causal_mask, score_mod::identity, Cache>;
    typename attend::problem p;
    p.q = batch_sequence_head<const float>(q.data(), 1, s.sequences * s.tokens, s.heads, s.head_dim);
    p.k = batch_head_sequence<const Cache>(k.data(), pages, s.kv_heads, s.page_size, s.head_dim);
    p.v = batch_head_sequence<const Cache>(v.data(), pages, s.kv_heads, s.page_size, s.head_dim);
    p.out = batch_sequence_head(out.data(), 1, s.sequences * s.tokens, s.heads, s.head_dim);
    p.seqused_k = lengths.data();
    p.varlen = {s.sequences, starts.data()};
    p.paged_kv = {table.data(), per_sequence};

    ankerl::nanobench::Bench()
        .unit("launch")
        .timeUnit(std::chrono::microseconds(1), "us")
        .minEpochIterations(s.tokens > 1 ? 5 : 200)
        .run(name, [&] { attend::launch(world::host, p); });
}

}  // namespace

int main() {
    measure<float>("1 token, 100 keys, 14 / 2 heads of 64", {.keys = 100});
    measure<float>("1 token, 1,000 keys, 14 / 2 heads of 64", {});
    measure<float>("the same, pages of 16 rows", {.page_size = 16});
    measure<bf16>("the same, bf16 cache", {});
    measure<float>("1 token, 1,000 keys, 32 / 32 heads of 128", {.heads = 32, .kv_heads = 32, .head_dim = 128});
    measure<float>("8 sequences of 1 token, 1,000 keys", {.sequences = 8});
    measure<float>("prompt of 512 tokens, 14 / 2 heads of 64", {.tokens = 512, .keys = 512});
    measure<float>("prompt of 512 tokens, 32 / 8 heads of 128",
                   {.heads = 32, .kv_heads = 8, .head_dim = 128, .tokens = 512, .keys = 512});
}
