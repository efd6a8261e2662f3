// Decoding one sequence: a prompt is appended as a whole, then one token at a time is appended and attends to all
// before it. The session keeps the KV cache in the world of the kernels, applies RoPE, and tracks the positions.
#include <imbrex/imbrex.hpp>
#include <imbrex/kernels/decode_session.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace imbrex;

int main() {
    const int heads = 4, kv_heads = 2, head_dim = 64, prompt = 20, tokens = 12;
    const world where = device_available() ? world::device : world::host;

    decode_session<bf16, head_dim_set{head_dim}, causal_mask> session(
        where, {.heads = heads,
                .kv_heads = kv_heads,
                .head_dim = head_dim,
                .capacity = 64,
                .rope = rope_frequencies{.theta = 10000, .rotary_dim = head_dim}});

    // Stands for a model's output: queries, keys and values of each token, token after token.
    world_array<bf16> q(where, (prompt + tokens) * heads * head_dim), k(where, (prompt + tokens) * kv_heads * head_dim),
        v(where, k.values.size()), out(where, q.values.size());
    for (std::size_t i = 0; i < q.values.size(); ++i) q.values[i] = bf16(std::sin(0.37f * float(i % 10007)));
    for (std::size_t i = 0; i < k.values.size(); ++i) k.values[i] = bf16(std::sin(0.23f * float(i % 10009)));
    for (std::size_t i = 0; i < v.values.size(); ++i) v.values[i] = bf16(std::cos(0.11f * float(i % 10037)));
    const bf16 *const all_q = q.upload(), *const all_k = k.upload(), *const all_v = v.upload();
    bf16* const all_out = out.upload();

    session.append(all_k, all_v, prompt);
    for (int token = prompt; token < prompt + tokens; ++token) {
        session.append(all_k + token * kv_heads * head_dim, all_v + token * kv_heads * head_dim, 1);
        session.decode(all_q + token * heads * head_dim, all_out + token * heads * head_dim, 1);
    }
    out.download();

    // The reference by plain loops. The product of rotated queries and keys depends on their distance.
    double worst = 0;
    for (int token = prompt; token < prompt + tokens; ++token) {
        for (int head = 0; head < heads; ++head) {
            const bf16* const query = &q.values[(token * heads + head) * head_dim];
            std::vector<double> expected(head_dim);
            double sum = 0;
            for (int past = 0; past <= token; ++past) {
                const int row = (past * kv_heads + head / (heads / kv_heads)) * head_dim, half = head_dim / 2;
                double dot = 0;
                for (int i = 0; i < half; ++i) {
                    const double angle = (token - past) * std::pow(10000.0, -2.0 * i / head_dim);
                    const double a = float(query[i]), b = float(query[i + half]);
                    const double c = float(k.values[row + i]), d = float(k.values[row + i + half]);
                    dot += (a * c + b * d) * std::cos(angle) + (a * d - b * c) * std::sin(angle);
                }
                const double weight = std::exp(dot / std::sqrt(double(head_dim)));
                sum += weight;
                for (int i = 0; i < head_dim; ++i) expected[i] += weight * float(v.values[row + i]);
            }
            for (int i = 0; i < head_dim; ++i) {
                const double error =
                    std::abs(expected[i] / sum - float(out.values[(token * heads + head) * head_dim + i]));
                worst = error <= worst ? worst : error;
            }
        }
    }
    std::printf("%d tokens after a prompt of %d in the %s world: largest error %.2g\n", tokens, prompt,
                name_of(where).c_str(), worst);

    session.reset();  // reuses the memory for the next sequence
    return worst < 0.02 && session.length() == 0 ? 0 : 1;
}
