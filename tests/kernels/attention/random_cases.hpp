// Random cases of attention: lengths, layouts, pages, GQA, masks, score_mods, sinks, scores from tiny to large. Many on
// the device; a few small ones in the slower host worlds.
#pragma once

#include <imbrex/kernels/attention/heuristics.hpp>

#include "kernels/attention/trial.hpp"
#include "random_below.hpp"

#include <algorithm>
#include <random>

namespace imbrex_test {

// The range that kernels are compiled for.
enum class masks { any, chunks, causal };
struct allowed {
    imbrex::attention_head_dims head_dims;
    masks seen = masks::causal;
    bool scores = false;
    bool sinks = true;
    bool sequences = true;  // padded and varlen
    bool pages = false;     // paged KV, always
};

inline attention_test_case random_case(std::mt19937& random, const allowed& may, bool large) {
    const random_below below(random);
    const auto length = [&] {
        const int kind = below(6);
        return kind == 0 ? below(3) : 1 + below(kind <= 2 ? 40 : large ? 400 : 160);
    };
    const auto head_dim = [&](int most) { return below(2) == 0 ? most : 16 + 16 * below(most / 16); };
    attention_test_case c;
    c.kv_heads = 1 + below(large ? 3 : 2);
    c.heads = c.kv_heads * (1 + below(large ? 5 : 2));
    c.batches = 1 + below(3);
    c.seqlen_q = length();
    c.seqlen_k = below(3) == 0 ? c.seqlen_q : length();
    c.head_dim_qk = head_dim(may.head_dims.qk);
    c.head_dim_v = may.head_dims.qk == may.head_dims.v && below(3) != 0 ? c.head_dim_qk : head_dim(may.head_dims.v);
    c.lie = static_cast<layout>(below(5));
    const float spreads[] = {1, 1, 0.001f, 20};
    c.spread = spreads[below(4)];
    c.scale = below(3) == 0 ? 0.05f + 0.1f * static_cast<float>(below(5)) : 0;
    c.sinks = may.sinks && below(3) == 0;
    if (may.seen == masks::causal) {
        c.right = 0;
    } else if (may.seen == masks::chunks) {
        c.chunk = 1 + below(200);
    } else {
        c.left = below(2) == 0 ? imbrex::unbounded : below(150);
        c.right = below(3) == 0 ? imbrex::unbounded : below(2) == 0 ? 0 : below(60);
        c.holes = below(4) == 0;
    }
    c.bounded = may.seen != masks::causal && below(4) == 0;
    c.capped = may.scores && below(2) == 0;
    c.sloped = may.scores && below(2) == 0;
    c.biased = may.scores && below(2) == 0;
    c.own_score = may.scores && below(3) == 0;
    const int kind = may.sequences ? below(4) : 0;
    if (kind == 1) {
        for (int i = 0; i < c.batches; ++i) c.seqused_k.push_back(below(c.seqlen_k + 1));
    } else if (kind == 2) {
        c.batches = 1;
        c.seqlen_q = c.seqlen_k = 0;
        for (int i = 1 + below(6); i > 0; --i) {
            const int seqlen_q = length(), seqlen_k = below(2) == 0 ? seqlen_q : length();
            c.packed.emplace_back(seqlen_q, seqlen_k);
            c.seqlen_q += seqlen_q;
            c.seqlen_k += seqlen_k;
        }
        c.seqlen_q += below(30);
        c.seqlen_k += below(30);
    }
    if (may.pages) c.page_size = below(3) == 0 ? 16 * (1 + below(20)) : 16 << below(5);
    return c;
}

// Calls check(where, case, seed), which returns errors, for `count` cases on the device, fewer elsewhere.
template <class Check>
void with_random_cases(unsigned seed, int cases, const allowed& may, Check check) {
    struct {
        double out = 0, lse2 = 0;
    } most;
    for (const world where : worlds()) {
        std::mt19937 random(seed);
        const bool many = where == world::device;
        const int count = many ? cases : where == world::host ? 20 : 4;
        for (int i = 0; i < count; ++i) {
            const attention_test_case c = random_case(random, may, many);
            CAPTURE(imbrex::name_of(where));
            CAPTURE(i);
            CAPTURE(c.batches);
            CAPTURE(c.heads);
            CAPTURE(c.kv_heads);
            CAPTURE(c.seqlen_q);
            CAPTURE(c.seqlen_k);
            CAPTURE(c.head_dim_qk);
            CAPTURE(c.head_dim_v);
            CAPTURE(static_cast<int>(c.lie));
            CAPTURE(c.bounded);
            CAPTURE(c.holes);
            CAPTURE(c.capped);
            CAPTURE(c.sloped);
            CAPTURE(c.biased);
            CAPTURE(c.own_score);
            CAPTURE(c.left);
            CAPTURE(c.right);
            CAPTURE(c.chunk);
            CAPTURE(c.spread);
            CAPTURE(c.scale);
            CAPTURE(c.sinks);
            CAPTURE(c.seqused_k.size());
            CAPTURE(c.packed.size());
            CAPTURE(c.page_size);
            const auto [out, lse2] = check(where, c, seed + 10 * i);
            CHECK(out <= 1);
            CHECK(lse2 <= 1);
            most = {std::max(most.out, out), std::max(most.lse2, lse2)};
        }
    }
    MESSAGE("errors are at most " << most.out << " and " << most.lse2 << " of what rounding may give");
}

}  // namespace imbrex_test
