// Attention with a user-defined mask and score_mod. The mask is a prefix-LM mask: every query sees the whole prompt,
// and of the tokens after it only those up to itself. The scores get a distance penalty after the library's softcap.
// The same functors run in both worlds, inside the kernel that the launcher selects. Fully masked key tiles are
// skipped, and fully unmasked ones cost nothing.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/attention_forward.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

struct prompt_mask {
    int prompt;

    // Queries and keys are counted from 0, and the last query corresponds to the last key.
    IMBREX_FN int seen(const attention_extents& s, int query) const {
        const int own = query + s.offset() + 1;
        return own > prompt ? own : prompt;
    }
    IMBREX_FN key_range visible_keys(const attention_extents& s, query_range q) const {
        return {0, seen(s, q.end - 1)};
    }
    IMBREX_FN bool fully_unmasked(const attention_extents& s, query_range q, key_range k) const {
        return k.end <= seen(s, q.first);
    }
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const { return key < seen(s, query); }
};

struct fading {
    float rate;

    IMBREX_KERNEL float operator()(const attention_extents& s, int query, int key, float score) const {
        const int distance = query + s.offset() - key;
        return score - rate * hw::log2(1.0f + static_cast<float>(distance < 0 ? -distance : distance));
    }
};

int main() {
    const int batches = 2, heads = 4, kv_heads = 2, length = 150, head_dim = 64, prompt = 40;
    const float cap = 10, rate = 0.25f, scale = 0.2f;
    const prompt_mask mask{prompt};
    const auto score = score_mod::compose(score_mod::softcap{cap}, fading{rate});
    using attention = attention_forward<bf16, attention_options{.head_dims = {head_dim}}, prompt_mask,
                                        decltype(score_mod::compose(score_mod::softcap{}, fading{}))>;

    const world where = device_available() ? world::device : world::host;

    // Q, K and V of a row are contiguous, as a fused QKV projection writes them.
    const int together = heads + 2 * kv_heads;
    world_array<bf16> qkv(where, batches * length * together * head_dim),
        out(where, batches * length * heads * head_dim);
    for (std::size_t i = 0; i < qkv.values.size(); ++i) qkv.values[i] = bf16(std::sin(0.37f * float(i % 10007)));
    const auto all = batch_sequence_head(qkv.upload(), batches, length, together, head_dim);
    attention::launch(where,
                      {.q = heads_of(all, 0, heads),
                       .k = heads_of(all, heads, kv_heads),
                       .v = heads_of(all, heads + kv_heads, kv_heads),
                       .out = batch_sequence_head(out.upload(), batches, length, heads, head_dim),
                       .scale = scale},
                      mask, score);
    out.download();

    double worst = 0;
    const auto at = [&](int batch, int row, int head) {
        return &qkv.values[((batch * length + row) * together + head) * head_dim];
    };
    for (int batch = 0; batch < batches; ++batch) {
        for (int head = 0; head < heads; ++head) {
            const int kv_head = heads + head / (heads / kv_heads);
            for (int query = 0; query < length; ++query) {
                std::vector<double> expected(head_dim);
                double sum = 0;
                for (int key = 0; key < length; ++key) {
                    if (key >= prompt && key > query) continue;
                    double dot = 0;
                    for (int i = 0; i < head_dim; ++i) {
                        dot += double(float(at(batch, query, head)[i])) * float(at(batch, key, kv_head)[i]);
                    }
                    const double capped = cap * std::tanh(dot * scale / cap);
                    const double weight = std::exp(capped - rate * std::log2(1.0 + std::abs(query - key)));
                    sum += weight;
                    for (int i = 0; i < head_dim; ++i) {
                        expected[i] += weight * float(at(batch, key, kv_head + kv_heads)[i]);
                    }
                }
                for (int i = 0; i < head_dim; ++i) {
                    const float found = float(out.values[((batch * length + query) * heads + head) * head_dim + i]);
                    const double error = std::abs(expected[i] / sum - found);
                    worst = error <= worst ? worst : error;
                }
            }
        }
    }
    std::printf("attention with a prompt of %d in the %s world: largest error %.2g\n", prompt, name_of(where).c_str(),
                worst);
    return worst < 0.02 ? 0 : 1;
}
