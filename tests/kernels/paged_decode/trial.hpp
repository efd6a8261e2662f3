// Any paged_decode problem through its launcher, against a reference in double: shared by the launcher's tests.
#pragma once

#include <imbrex/kernels/paged_decode.hpp>

#include "kernels/attention/trial.hpp"
#include "random_below.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace imbrex_test {

// Launches twice in one workspace, whose counters are zero at first; the second time with pdl_prefetch.
template <class Decode, class In, class Launch>
void check_trial(world where, attention_trial<In>& there, int blocks, int split_size,
                 std::optional<imbrex::decode_kernel_kind> kernel, const Launch& launch) {
    auto problem = there.upload();
    buffer<int> workspace(where, Decode::workspace_bytes(where, problem, blocks, split_size) / sizeof(int), -1);
    std::fill_n(workspace.values.begin(), Decode::workspace_bytes_to_zero(where, blocks) / sizeof(int), 0);
    imbrex::decode_options options;
    options.workspace = workspace.upload();
    options.blocks = blocks;
    options.split_size = split_size;
    options.kernel = kernel;
    launch(problem, options);
    const auto bits = there.download();
    const auto worst = there.worst();
    CHECK(worst.out <= 1);
    CHECK(worst.lse2 <= 1);
    problem = there.upload();
    options.pdl_prefetch = true;
    launch(problem, options);
    CHECK(there.download() == bits);
}

// Calls call(kernel) for all multi-KV-head kernels that apply.
template <class Decode, class Problem, class Call>
void for_multi_kv_head_kernels(world where, const Problem& problem, int split_size, const Call& call) {
    using enum imbrex::decode_kernel_kind;
    for (const auto kernel : {kv_heads_8, kv_heads_4, kv_heads_2}) {
        if (Decode::can_use_multi_kv_head(where, problem, kernel, {.split_size = split_size})) call(kernel);
    }
}

// In grids of the given sizes, with the chosen kernel and the sm_80 kernel; and with the cluster and multi-KV-head
// kernels where they apply.
template <class Decode, class In, bool Scored = false>
void check_decode(const attention_test_case& given, const std::vector<int>& grids, unsigned seed = 1,
                  int split_size = 0) {
    using imbrex::decode_kernel_kind;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const auto check = [&](int blocks, std::optional<decode_kernel_kind> kernel) {
            CAPTURE(blocks);
            CAPTURE((kernel ? imbrex::name_of(*kernel) : "chosen"));
            attention_trial<In> there(where, given, seed);
            const auto launch = [&](const auto& problem, const imbrex::decode_options& options) {
                if constexpr (Scored) {
                    Decode::launch(where, problem, options, there.mask(), there.score());
                } else {
                    Decode::launch(where, problem, options, there.mask());
                }
            };
            check_trial<Decode>(where, there, blocks, split_size, kernel, launch);
        };
        for (const int blocks : grids) {
            check(blocks, {});
            check(blocks, decode_kernel_kind::ampere_class);
        }
        attention_trial<In> there(where, given, seed);
        const bool on_hopper = Decode::choice(where, there.upload()) != decode_kernel_kind::ampere_class;
        if (on_hopper && split_size == 0) check(1, decode_kernel_kind::cluster);
        for_multi_kv_head_kernels<Decode>(where, there.upload(), split_size, [&](decode_kernel_kind kernel) {
            for (const int blocks : grids) check(blocks, kernel);
        });
    }
}

inline attention_test_case random_decode(std::mt19937& random, int head_dim, bool scores, bool large) {
    const random_below below(random);
    attention_test_case c;
    // Few long sequences, or many short ones.
    const bool many = below(4) == 0;
    const int most = large && !many ? 1000 : 150;
    const bool together = below(5) == 0;
    c.kv_heads = together ? 8 : 1 + below(3);
    c.heads = c.kv_heads * (1 + below(many || together ? 2 : below(4) == 0 ? 20 : 6));
    c.batches = 1 + below(many ? 70 : 3);
    c.seqlen_q = below(2) == 0 ? 1 : 1 + below(together ? 5 : 9);
    c.seqlen_k = 1 + below(most);
    c.head_dim_qk = below(2) == 0 ? head_dim : 16 + 16 * below(head_dim / 16);
    c.head_dim_v = below(2) == 0 ? c.head_dim_qk : 16 + 16 * below(head_dim / 16);
    c.lie = below(8) == 0 ? layout::unaligned : static_cast<layout>(below(2));
    c.page_size = below(3) == 0 ? 16 * (1 + below(20)) : 16 << below(5);
    const float spreads[] = {1, 1, 0.001f, 20};
    c.spread = spreads[below(4)];
    c.sinks = below(3) == 0;
    c.right = below(3) == 0 ? imbrex::unbounded : 0;
    c.left = below(2) == 0 ? imbrex::unbounded : below(100);
    c.holes = below(4) == 0;
    c.bounded = below(5) == 0;
    c.capped = scores && below(2) == 0;
    c.sloped = scores && below(2) == 0;
    c.biased = scores && below(2) == 0;
    c.own_score = scores && below(3) == 0;
    const auto length = [&] {
        const int kind = below(6);
        return kind == 0   ? below(3)
               : kind <= 2 ? std::max(0, std::min(c.seqlen_k, 16 * (1 + below(most / 16)) - 1 + below(3)))
                           : below(c.seqlen_k + 1);
    };
    if (below(3) == 0) {
        const int members = c.batches;
        c.batches = 1;
        c.seqlen_q = c.seqlen_k = 0;
        for (int i = 0; i < members; ++i) {
            const int queries = below(5), keys = 1 + below(most);
            c.packed.emplace_back(queries, keys);
            c.seqlen_q += queries;
            c.seqlen_k += keys;
        }
        c.seqlen_q += below(3) + 1;
    } else {
        for (int i = 0; i < c.batches; ++i) c.seqused_k.push_back(length());
    }
    return c;
}

// Random problems, many on the device and a few in the host worlds: check(case, grid size, seed, generator).
template <class Check>
void for_random_decodes(unsigned seed, int cases, int cases_on_host, int head_dim, bool scores, const Check& check) {
    std::mt19937 random(seed);
#if defined(__CUDACC__)
    constexpr bool many = true;
#else
    constexpr bool many = false;
#endif
    for (int i = 0; i < (many ? cases : cases_on_host); ++i) {
        attention_test_case c = random_decode(random, head_dim, scores, many);
        const int grids[] = {1, 2, 7, 33, 132, 200};
        const int blocks = grids[random() % (many ? 6 : 4)];
        CAPTURE(i);
        CAPTURE(c.batches);
        CAPTURE(c.heads);
        CAPTURE(c.kv_heads);
        CAPTURE(c.seqlen_q);
        CAPTURE(c.seqlen_k);
        CAPTURE(c.head_dim_qk);
        CAPTURE(c.head_dim_v);
        CAPTURE(c.page_size);
        CAPTURE(c.packed.size());
        CAPTURE(c.left);
        CAPTURE(c.right);
        CAPTURE(c.holes);
        CAPTURE(c.sinks);
        CAPTURE(c.spread);
        check(c, blocks, seed + 10 * i, random);
    }
}

template <class Decode, class In, bool Scored = false>
void check_random_decode(unsigned seed, int cases, int head_dim) {
    for_random_decodes(seed, cases, 10, head_dim, Scored,
                       [](const attention_test_case& c, int blocks, unsigned case_seed, std::mt19937&) {
                           // Every third problem has a fixed split size.
                           const int parts[] = {0, 0, 64, 0, 0, 128};
                           check_decode<Decode, In, Scored>(c, {blocks}, case_seed, parts[case_seed / 10 % 6]);
                       });
}

}  // namespace imbrex_test
