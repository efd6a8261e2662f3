// Tests of paged_decode over e4m3 and int8 caches through its launcher: all kinds of scales, lengths at every boundary,
// NaN pages and scales, random problems, invalid arguments.
#include "kernels/paged_decode/eight_bits.hpp"

#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In, class Cache, int HeadDim, class Score = score_mod::identity>
using decode = paged_decode<In, decode_config{.head_dims = {HeadDim}}, any_mask, Score, Cache>;

}  // namespace

TEST_CASE("lengths at every boundary, scales per tensor, head and page") {
    attention_test_case c{.batches = 12, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 200};
    c.seqused_k = {200, 0, 1, 15, 16, 17, 31, 63, 64, 65, 127, 129};
    c.right = 0;
    for (const int page_size : {16, 48, 64, 256}) {
        CAPTURE(page_size);
        c.page_size = page_size;
        for (const scales_of kind : {scales_of::all, scales_of::heads, scales_of::pages}) {
            check_eight_bits<bf16, e4m3, decode<bf16, e4m3, 64>>(c, {4, 50}, kind, kind);
        }
    }
}

TEST_CASE("multi-KV-head kernels, scales per tensor, head and page") {
    attention_test_case c{.batches = 5, .heads = 32, .kv_heads = 8, .seqlen_q = 1, .seqlen_k = 150};
    c.seqused_k = {150, 0, 33, 64, 17};
    c.right = 0;
    for (const int page_size : {16, 64}) {
        CAPTURE(page_size);
        c.page_size = page_size;
        for (const scales_of kind : {scales_of::all, scales_of::heads, scales_of::pages}) {
            check_eight_bits<bf16, e4m3, decode<bf16, e4m3, 64>>(c, {2, 9}, kind, kind);
        }
    }
}

TEST_CASE("per-page scales that differ by orders of magnitude, fp16 output") {
    attention_test_case c{.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 2, .seqlen_k = 700, .page_size = 16};
    c.right = 0;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        eight_bit_trial<fp16, std::int8_t> trial(where, c, 3, scales_of::pages, scales_of::pages);
        // Some pages are multiplied by a power of two; the largest comes last.
        for (const attention_member& one : trial.there.members) {
            for (int key = 0; key < one.seqlen_k; ++key) {
                const int page =
                    trial.there.at.table.entries[one.number * trial.there.at.table.per_sequence + key / 16];
                const float factor = std::ldexp(1.0f, key / 16 / 12 * 3 - 9);
                if (key % 16 == 0) trial.v_scales.values[page] *= factor;
                fp16* const values = &trial.there.inputs.values[trial.there.at.key_at(trial.there.at.v, one, 0, key)];
                for (int i = 0; i < c.head_dim_v; ++i) values[i] = fp16(float(values[i]) * factor);
            }
        }
        using kind = decode<fp16, std::int8_t, 64, any_score>;
        const auto problem = trial.upload();
        buffer<int> workspace(where, kind::workspace_bytes(where, problem, 3) / sizeof(int), 0);
        decode_options options;
        options.workspace = workspace.upload();
        options.blocks = 3;
        kind::launch(where, problem, options, trial.there.mask(), trial.there.score());
        const auto worst = trial.there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
}

TEST_CASE("random problems in e4m3 and bf16") {
    check_random_eight_bits<bf16, e4m3, decode<bf16, e4m3, 64>>(1, 100, 64);
}

TEST_CASE("random problems in int8 and fp16, with a score_mod") {
    using kind = decode<fp16, std::int8_t, 64, any_score>;
    check_random_eight_bits<fp16, std::int8_t, kind, true>(2, 80, 64);
}

TEST_CASE("falls back where TMA cannot read; rejects the cluster kernel") {
    attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 2, .seqlen_k = 100, .page_size = 16};
    c.seqused_k = {100, 30};
    c.lie = layout::unaligned;
    for (const scales_of kind : {scales_of::heads, scales_of::pages}) {
        check_eight_bits<bf16, e4m3, decode<bf16, e4m3, 64>>(c, {3}, kind, kind);
    }
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        c.lie = {};
        eight_bit_trial<bf16, e4m3> narrow(where, c, 1, scales_of::heads, scales_of::heads);
        const auto problem = narrow.upload();
        CHECK(error_message_of([&] {
                  decode<bf16, e4m3, 64>::launch(where, problem, {.kernel = decode_kernel_kind::cluster},
                                                 narrow.there.mask());
              }) == "options.kernel: cluster; an 8-bit cache needs hopper");
    }
}
