// Shared by the attention tests: tensors of any layout, and attention in double.
#pragma once

#include <imbrex/kernels/attention/hopper.hpp>

#include "worlds.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace imbrex_test {

struct attention_case {
    int batches = 1, heads = 1, kv_heads = 1;
    int seqlen_q = 1, seqlen_k = 1;
};

// Q, K, V and O as [batch, sequence, head, head_dim], and the reference.
template <class In, int HeadDimQK, int HeadDimV>
struct attention_tensors {
    attention_case sizes;
    buffer<In> q, k, v, out;
    buffer<float> lse2;

    attention_tensors(world where, const attention_case& sizes, unsigned seed, float spread = 1)
        : sizes(sizes),
          q(where, std::size_t(sizes.batches) * sizes.seqlen_q * sizes.heads * HeadDimQK),
          k(where, std::size_t(sizes.batches) * sizes.seqlen_k * sizes.kv_heads * HeadDimQK),
          v(where, std::size_t(sizes.batches) * sizes.seqlen_k * sizes.kv_heads * HeadDimV),
          out(where, std::size_t(sizes.batches) * sizes.seqlen_q * sizes.heads * HeadDimV, In(NAN)),
          lse2(where, std::size_t(sizes.batches) * sizes.heads * sizes.seqlen_q, NAN) {
        fill_random(q.values, seed, -spread, spread);
        fill_random(k.values, seed + 1, -spread, spread);
        fill_random(v.values, seed + 2);
    }

    template <class T>
    static imbrex::attention_view<T> view_of(T* pointer, int batches, int length, int heads, int head_dim) {
        return {pointer,
                {batches, heads, length, head_dim},
                {std::int64_t(length) * heads * head_dim, head_dim, heads * head_dim}};
    }

    template <class Kernel>
    typename Kernel::arguments send(decltype(Kernel::arguments::mask) mask = {},
                                    decltype(Kernel::arguments::score) score = {}, float scale = 0.25f,
                                    int l2_sections = 0) {
        using namespace imbrex;
        const auto out_view = view_of(out.upload(), sizes.batches, sizes.seqlen_q, sizes.heads, HeadDimV);
        typename Kernel::arguments made{
            make_tma_tensor<typename Kernel::q_tile>(
                view_of(q.upload(), sizes.batches, sizes.seqlen_q, sizes.heads, HeadDimQK)),
            make_tma_tensor<typename Kernel::k_tile>(
                view_of(k.upload(), sizes.batches, sizes.seqlen_k, sizes.kv_heads, HeadDimQK)),
            make_tma_tensor<typename Kernel::v_tile>(
                view_of(v.upload(), sizes.batches, sizes.seqlen_k, sizes.kv_heads, HeadDimV)),
            make_tma_tensor<typename Kernel::out_tile>(out_view, tma_use::store),
            out_view,
            {{lse2.upload(), std::int64_t(sizes.heads) * sizes.seqlen_q, sizes.seqlen_q}, {}, {}, {}},
            mask,
            score,
            scale,
            scale_log2_after(score, scale),
            {sizes.batches, sizes.heads, (sizes.seqlen_q + Kernel::block_m - 1) / Kernel::block_m, l2_sections},
            {sizes.seqlen_q, sizes.seqlen_k},
            sizes.heads / sizes.kv_heads,
            nullptr,
            nullptr};
        return made;
    }

    // The maximum errors of O and of the LSE. `keep` and `score` are those of a mask and a score_mod.
    struct errors {
        double out = 0;
        double lse2 = 0;
    };
    template <class Keep, class Score>
    errors compare(float scale, Keep keep, Score score) {
        out.download();
        lse2.download();
        errors worst;
        // Converted once: the tests are compiled with little optimisation.
        const auto as_floats = [](const std::vector<In>& from) {
            std::vector<float> to(from.size());
            std::transform(from.begin(), from.end(), to.begin(), [](In x) { return float(x); });
            return to;
        };
        const std::vector<float> queries = as_floats(q.values), keys = as_floats(k.values), rows = as_floats(v.values);
        const auto note = [](double& most, double error) {
            most = error <= most ? most : std::isnan(error) ? INFINITY : error;
        };
        for (int batch = 0; batch < sizes.batches; ++batch) {
            for (int head = 0; head < sizes.heads; ++head) {
                const int kv_head = head / (sizes.heads / sizes.kv_heads);
                const imbrex::attention_extents sequence{batch, head, sizes.seqlen_q, sizes.seqlen_k};
                const auto query_place = [&](int query, int head_dim) {
                    return ((std::size_t(batch) * sizes.seqlen_q + query) * sizes.heads + head) * head_dim;
                };
                const auto key_place = [&](int key, int head_dim) {
                    return ((std::size_t(batch) * sizes.seqlen_k + key) * sizes.kv_heads + kv_head) * head_dim;
                };
                for (int query = 0; query < sizes.seqlen_q; ++query) {
                    std::vector<double> s(sizes.seqlen_k, -INFINITY);
                    double most = -INFINITY;
                    for (int key = 0; key < sizes.seqlen_k; ++key) {
                        if (!keep(sequence, query, key)) continue;
                        const float* const left = &queries[query_place(query, HeadDimQK)];
                        const float* const right = &keys[key_place(key, HeadDimQK)];
                        double dot = 0;
                        for (int i = 0; i < HeadDimQK; ++i) dot += double(left[i]) * right[i];
                        s[key] = score(sequence, query, key, dot * scale);
                        most = std::fmax(most, s[key]);
                    }
                    double sum = 0;
                    std::vector<double> expected(HeadDimV);
                    for (int key = 0; key < sizes.seqlen_k; ++key) {
                        if (s[key] == -INFINITY) continue;
                        const double weight = std::exp(s[key] - most);
                        sum += weight;
                        const float* const value = &rows[key_place(key, HeadDimV)];
                        double* const sums = expected.data();
                        for (int i = 0; i < HeadDimV; ++i) sums[i] += weight * value[i];
                    }
                    for (int i = 0; i < HeadDimV; ++i) {
                        const double right = sum > 0 ? expected[i] / sum : 0;
                        note(worst.out, std::abs(right - float(out.values[query_place(query, HeadDimV) + i])));
                    }
                    const float found = lse2.values[(std::size_t(batch) * sizes.heads + head) * sizes.seqlen_q + query];
                    if (sum > 0) {
                        note(worst.lse2, std::abs((most + std::log(sum)) * 1.4426950408889634 - found));
                    } else if (found != -INFINITY) {
                        note(worst.lse2, INFINITY);
                    }
                }
            }
        }
        return worst;
    }
};

}  // namespace imbrex_test
