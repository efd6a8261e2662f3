// What the attention tests share: tensors of any layout, and attention in double.
#pragma once

#include <imbrex/kernels/attention/hopper.hpp>

#include "worlds.hpp"

#include <cmath>
#include <functional>
#include <vector>

namespace imbrex_test {

struct attention_case {
    int batches = 1, heads = 1, key_heads = 1;
    int queries = 1, keys = 1;
};

// Q, K, V and O as [batch, sequence, head, depth], and the reference.
template <class In, int KeyDepth, int ValueDepth>
struct attention_tensors {
    attention_case sizes;
    buffer<In> q, k, v, out;
    buffer<float> log2_sums;

    attention_tensors(world where, const attention_case& sizes, unsigned seed, float spread = 1)
        : sizes(sizes),
          q(where, std::size_t(sizes.batches) * sizes.queries * sizes.heads * KeyDepth),
          k(where, std::size_t(sizes.batches) * sizes.keys * sizes.key_heads * KeyDepth),
          v(where, std::size_t(sizes.batches) * sizes.keys * sizes.key_heads * ValueDepth),
          out(where, std::size_t(sizes.batches) * sizes.queries * sizes.heads * ValueDepth, In(NAN)),
          log2_sums(where, std::size_t(sizes.batches) * sizes.heads * sizes.queries, NAN) {
        fill_random(q.values, seed, -spread, spread);
        fill_random(k.values, seed + 1, -spread, spread);
        fill_random(v.values, seed + 2);
    }

    template <class T>
    static imbrex::attention_view<T> view_of(T* pointer, int batches, int length, int heads, int depth) {
        return {pointer, {batches, heads, length, depth}, {std::int64_t(length) * heads * depth, depth, heads * depth}};
    }

    template <class Kernel>
    typename Kernel::arguments send(decltype(Kernel::arguments::mask) mask = {},
                                    decltype(Kernel::arguments::score) score = {}, float scale = 0.25f,
                                    int sections = 0) {
        using namespace imbrex;
        const auto out_view = view_of(out.send(), sizes.batches, sizes.queries, sizes.heads, ValueDepth);
        typename Kernel::arguments made{
            tensor_of<typename Kernel::q_tile>(view_of(q.send(), sizes.batches, sizes.queries, sizes.heads, KeyDepth)),
            tensor_of<typename Kernel::k_tile>(view_of(k.send(), sizes.batches, sizes.keys, sizes.key_heads, KeyDepth)),
            tensor_of<typename Kernel::v_tile>(
                view_of(v.send(), sizes.batches, sizes.keys, sizes.key_heads, ValueDepth)),
            tensor_of<typename Kernel::out_tile>(out_view, tensor_use::store),
            out_view,
            {{log2_sums.send(), std::int64_t(sizes.heads) * sizes.queries, sizes.queries}, {}, {}, {}},
            mask,
            score,
            scale,
            factor_after(score, scale),
            {sizes.batches, sizes.heads, (sizes.queries + Kernel::rows - 1) / Kernel::rows, sections},
            {sizes.queries, sizes.keys},
            sizes.heads / sizes.key_heads,
            nullptr,
            nullptr};
        return made;
    }

    // The largest errors of O and of the logarithms. `keep` and `score` as a mask's and a score's.
    struct errors {
        double out = 0;
        double log2_sum = 0;
    };
    template <class Keep, class Score>
    errors compare(float scale, Keep keep, Score score) {
        out.fetch();
        log2_sums.fetch();
        errors worst;
        const auto note = [](double& most, double error) {
            most = error <= most ? most : std::isnan(error) ? INFINITY : error;
        };
        for (int batch = 0; batch < sizes.batches; ++batch) {
            for (int head = 0; head < sizes.heads; ++head) {
                const int key_head = head / (sizes.heads / sizes.key_heads);
                const imbrex::attention_sequence sequence{batch, head, sizes.queries, sizes.keys};
                const auto query_place = [&](int query, int depth) {
                    return ((std::size_t(batch) * sizes.queries + query) * sizes.heads + head) * depth;
                };
                const auto key_place = [&](int key, int depth) {
                    return ((std::size_t(batch) * sizes.keys + key) * sizes.key_heads + key_head) * depth;
                };
                for (int query = 0; query < sizes.queries; ++query) {
                    std::vector<double> s(sizes.keys, -INFINITY);
                    double most = -INFINITY;
                    for (int key = 0; key < sizes.keys; ++key) {
                        if (!keep(sequence, query, key)) continue;
                        double dot = 0;
                        for (int i = 0; i < KeyDepth; ++i) {
                            dot += double(float(q.values[query_place(query, KeyDepth) + i])) *
                                   float(k.values[key_place(key, KeyDepth) + i]);
                        }
                        s[key] = score(sequence, query, key, dot * scale);
                        most = std::fmax(most, s[key]);
                    }
                    double sum = 0;
                    std::vector<double> expected(ValueDepth);
                    for (int key = 0; key < sizes.keys; ++key) {
                        if (s[key] == -INFINITY) continue;
                        const double weight = std::exp(s[key] - most);
                        sum += weight;
                        for (int i = 0; i < ValueDepth; ++i) {
                            expected[i] += weight * float(v.values[key_place(key, ValueDepth) + i]);
                        }
                    }
                    for (int i = 0; i < ValueDepth; ++i) {
                        const double right = sum > 0 ? expected[i] / sum : 0;
                        note(worst.out, std::abs(right - float(out.values[query_place(query, ValueDepth) + i])));
                    }
                    const float found =
                        log2_sums.values[(std::size_t(batch) * sizes.heads + head) * sizes.queries + query];
                    if (sum > 0) {
                        note(worst.log2_sum, std::abs((most + std::log(sum)) * 1.4426950408889634 - found));
                    } else if (found != -INFINITY) {
                        note(worst.log2_sum, INFINITY);
                    }
                }
            }
        }
        return worst;
    }
};

}  // namespace imbrex_test
