// Random cases of attention: lengths, layouts, pages, shared key heads, masks, scores, sinks, with scores from tiny to large. On the
// device many; in the host worlds, which are slower, a few small ones.
#pragma once

#include <imbrex/kernels/attention/choice.hpp>

#include "kernels/attention/trial.hpp"

#include <algorithm>
#include <random>

namespace imbrex_test {

// What kernels are compiled for.
enum class masks { any, chunks, causal };
struct allowed {
    imbrex::attention_depths depths;
    masks seen = masks::causal;
    bool scores = false;
    bool sinks = true;
    bool sequences = true;  // padded and packed ones
    bool pages = false;     // of keys and values, always
};

inline attention_test_case random_case(std::mt19937& random, const allowed& may, bool large) {
    const auto below = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
    const auto length = [&] {
        const int kind = below(6);
        return kind == 0 ? below(3) : 1 + below(kind <= 2 ? 40 : large ? 400 : 160);
    };
    const auto depth = [&](int most) { return below(2) == 0 ? most : 16 + 16 * below(most / 16); };
    attention_test_case c;
    c.key_heads = 1 + below(large ? 3 : 2);
    c.heads = c.key_heads * (1 + below(large ? 5 : 2));
    c.batches = 1 + below(3);
    c.queries = length();
    c.keys = below(3) == 0 ? c.queries : length();
    c.key_depth = depth(may.depths.key);
    c.value_depth = may.depths.key == may.depths.value && below(3) != 0 ? c.key_depth : depth(may.depths.value);
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
        for (int i = 0; i < c.batches; ++i) c.key_lengths.push_back(below(c.keys + 1));
    } else if (kind == 2) {
        c.batches = 1;
        c.queries = c.keys = 0;
        for (int i = 1 + below(6); i > 0; --i) {
            const int queries = length(), keys = below(2) == 0 ? queries : length();
            c.packed.emplace_back(queries, keys);
            c.queries += queries;
            c.keys += keys;
        }
        c.queries += below(30);
        c.keys += below(30);
    }
    if (may.pages) c.page_rows = below(3) == 0 ? 16 * (1 + below(20)) : 16 << below(5);
    return c;
}

// Calls check(where, case, seed), which returns errors, for so many cases on the device, fewer elsewhere.
template <class Check>
void with_random_cases(unsigned seed, int cases, const allowed& may, Check check) {
    struct {
        double out = 0, log2_sum = 0;
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
            CAPTURE(c.key_heads);
            CAPTURE(c.queries);
            CAPTURE(c.keys);
            CAPTURE(c.key_depth);
            CAPTURE(c.value_depth);
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
            CAPTURE(c.key_lengths.size());
            CAPTURE(c.packed.size());
            CAPTURE(c.page_rows);
            const auto [out, log2_sum] = check(where, c, seed + 10 * i);
            CHECK(out <= 1);
            CHECK(log2_sum <= 1);
            most = {std::max(most.out, out), std::max(most.log2_sum, log2_sum)};
        }
    }
    MESSAGE("errors are at most " << most.out << " and " << most.log2_sum << " of what rounding may give");
}

}  // namespace imbrex_test
