// attention_fp8 against attention in double on the dequantised inputs: scales per tensor, head and block, both layouts
// of V, both accumulations, masks, a score_mod, GQA, lengths, varlen and padded batches, paged KV, sinks, what lies
// behind the end of a sequence, and argument checks.
#include <imbrex/kernels/attention_fp8.hpp>

#include "kernels/attention_fp8/trial.hpp"
#include "worlds.hpp"

#include <cmath>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

constexpr auto k_major = fp8_v_layout::k_major;
constexpr auto fast = fp8_accumulation::fast;

const auto unchanged = [](const attention_extents&, int, int, double x) { return x; };

// One kernel: a type of attention_fp8 with the trial that belongs to it.
template <class Out, attention_fp8_options Options, class Mask, class Scaling, class Score = score_mod::identity>
struct fp8_kernel {
    using attention = attention_fp8<Out, Options, Mask, Scaling, Score>;
    using trial = fp8_trial<Out, Scaling, Options.v_layout>;

    template <class ScoreInDouble = decltype(unchanged)>
    static void check(const fp8_case& given, const Mask& mask = {}, const Score& score = {},
                      const ScoreInDouble& in_double = unchanged, std::uint32_t seed = 1) {
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            CAPTURE(given.seqlen_q);
            CAPTURE(given.seqlen_k);
            CAPTURE(given.head_dim);
            trial there(where, given, seed);
            there.poison_keys();
            attention::launch(where, there.upload(), mask, score);
            const auto worst = there.compare(
                [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); }, in_double);
            CHECK(worst.out <= 1);
            CHECK(worst.lse2 <= (where == world::device ? 0.01 : 1e-4));
        }
    }
};

constexpr attention_fp8_options wide{.head_dims = {128}};
constexpr attention_fp8_options narrow{.head_dims = {64}};
constexpr attention_fp8_options narrow_fast_k_major{.head_dims = {64}, .accumulation = fast, .v_layout = k_major};

using full = fp8_kernel<bf16, wide, full_mask, fp8_scaling::per_head>;
using causal = fp8_kernel<bf16, narrow, causal_mask, fp8_scaling::per_tensor>;
using blocks = fp8_kernel<fp16, narrow_fast_k_major, causal_mask, fp8_scaling::per_block<64, 128>>;
constexpr attention_fp8_options narrow_paged{.head_dims = {64}, .kv = kv_layout::paged};
constexpr attention_fp8_options narrow_paged_fast{.head_dims = {64}, .accumulation = fast, .kv = kv_layout::paged};
using paged = fp8_kernel<bf16, narrow_paged, causal_mask, fp8_scaling::per_head>;
using paged_window = fp8_kernel<bf16, narrow_paged, window_mask, fp8_scaling::per_block<64, 128>>;
using eight = fp8_kernel<e4m3, narrow, causal_mask, fp8_scaling::per_head>;
using paged_scales = fp8_kernel<fp16, narrow_paged_fast, full_mask, fp8_scaling::per_page<64>>;
using capped = fp8_kernel<bf16, narrow, window_mask, fp8_scaling::per_block<128, 256>, score_mod::softcap>;

}  // namespace

TEST_CASE("attention_fp8: full, lengths that do not fill tiles, GQA, head dims below the compiled one") {
    full::check({.seqlen_q = 1, .seqlen_k = 1, .head_dim = 128});
    full::check({.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 300, .head_dim = 128});
    full::check({.heads = 3, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 128, .head_dim = 80});
}

TEST_CASE("attention_fp8: causal; queries that see no key") {
    causal::check({.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 300, .seqlen_k = 500});
    causal::check({.heads = 2, .seqlen_q = 300, .seqlen_k = 40, .sinks = true});
    causal::check({.heads = 2, .seqlen_q = 300, .seqlen_k = 40});
}

TEST_CASE("attention_fp8: scales per block, a K-major V, fp16, a window and a softcap") {
    blocks::check({.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 420});
    blocks::check({.seqlen_q = 64, .seqlen_k = 129, .head_dim = 48});
    const float cap = 3;
    capped::check({.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 260, .seqlen_k = 600}, window_mask{150, 20},
                  score_mod::softcap{cap},
                  [&](const attention_extents&, int, int, double x) { return cap * std::tanh(x / cap); });
}

TEST_CASE("attention_fp8: varlen and padded batches, some empty; NaN behind the end of a sequence has no effect") {
    fp8_case varlen{.heads = 2, .seqlen_q = 420, .seqlen_k = 520, .sinks = true};
    varlen.starts_q = {0, 130, 130, 190, 230, 390};
    varlen.starts_k = {0, 200, 260, 260, 330, 511};
    causal::check(varlen);
    fp8_case aligned = varlen;  // K-major: sequences begin at multiples of 16
    aligned.starts_k = {0, 208, 272, 272, 336, 511};
    blocks::check(aligned);
    fp8_case padded{.batches = 4, .heads = 2, .seqlen_q = 100, .seqlen_k = 300, .head_dim = 128};
    padded.used_k = {300, 0, 1, 140};
    full::check(padded);
    // NaN in a sequence stays there.
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        causal::trial there(where, varlen, 1);
        there.poison_keys(1);
        causal::attention::launch(where, there.upload());
        const auto keep = [](const attention_extents& s, int query, int key) { return key <= query + s.offset(); };
        CHECK(there.compare(keep, unchanged, 1).out <= 1);
    }
}

TEST_CASE("attention_fp8: paged KV, pages narrower and wider than tiles, queries of varlen, scales per page") {
    // Behind the last key pages have NaN; the other pages are NaN, too.
    for (const int page_size : {16, 64, 128}) {
        fp8_case given{.batches = 3, .heads = 4, .kv_heads = 2, .seqlen_q = 70, .seqlen_k = 400};
        given.page_size = page_size;
        given.used_k = {400, 0, 135};
        paged::check(given);
    }
    fp8_case varlen{.heads = 2, .seqlen_q = 210, .seqlen_k = 384, .page_size = 48, .sinks = true};
    varlen.starts_q = {0, 130, 130, 131, 210};
    varlen.used_k = {384, 100, 97, 200};
    paged_window::check(varlen, window_mask{90, 10});
    fp8_case by_page{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 512, .page_size = 128};
    paged_scales::check(by_page);
    by_page.used_k = {270, 512};
    by_page.page_size = 64;
    paged_scales::check(by_page);
}

TEST_CASE("attention_fp8: an e4m3 output has a scale and is saturated") {
    eight::check({.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 100});
    fp8_case varlen{.heads = 2, .seqlen_q = 230, .seqlen_k = 230, .head_dim = 48, .sinks = true};
    varlen.starts_q = varlen.starts_k = {0, 70, 200, 230};
    eight::check(varlen);
}

TEST_CASE("attention_fp8: large, small and zero scales, and scores that are all negative") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        const auto keep = [](const attention_extents& s, int query, int key) { return key <= query + s.offset(); };
        blocks::trial there(where, {.seqlen_q = 200, .seqlen_k = 512}, 1);
        there.k_scales.values = {1e-3f, 1.0f, 0.0f, 0.5f};
        there.v_scales.values = {1e5f, 1e-12f, 0.0f, 1e-3f};
        blocks::attention::launch(where, there.upload());
        CHECK(there.compare(keep, unchanged).out <= 1);
        causal::trial negative(where, {.seqlen_q = 200, .seqlen_k = 400, .spread = 1}, 1);
        for (std::size_t i = 0; i < negative.q.values.size(); i += 64) negative.q.values[i] = e4m3(12.0f);
        for (std::size_t i = 0; i < negative.k.values.size(); i += 64) negative.k.values[i] = e4m3(-12.0f);
        causal::attention::launch(where, negative.upload());
        CHECK(negative.compare(keep, unchanged).out <= 1);
        negative.q_scales.values = {0.0f};  // the average of V
        causal::attention::launch(where, negative.upload());
        CHECK(negative.compare(keep, unchanged).out <= 1);
    }
}

TEST_CASE("attention_fp8: rejects invalid arguments") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        blocks::trial there(where, {.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 30, .seqlen_k = 48}, 1);
        const auto good = there.upload();
        const auto refused = [&](auto change) {
            auto bad = good;
            change(bad);
            return error_message_of([&] { blocks::attention::launch(where, bad); });
        };
        CHECK(refused([](auto&) {}) == "no error");
        CHECK(refused([](auto& p) { p.v.extents.given[3] = 47; }) ==
              "v.extents[3]: 47; k has 48 rows, and it must have as many");
        CHECK(refused([](auto& p) { p.out.extents.given[3] = 48; }) ==
              "out.extents[3]: 48; v has 64 rows, and it must have as many");
        CHECK(refused([](auto& p) { p.q_descale.heads_per_scale = 3; }) ==
              "q_descale.heads_per_scale: 3; must be a divisor of the 4 heads of q");
        CHECK(refused([](auto& p) { p.k_descale.batch_stride = -1; }) ==
              "k_descale.batch_stride: -1; it must not be negative");
        CHECK(refused([](auto& p) { p.v_descale.head_stride = -2; }) ==
              "v_descale.head_stride: -2; it must not be negative");
        CHECK(refused([](auto& p) { p.k.strides.given[2] = 129; }) == "no error");  // by the Ada-class kernel
        CHECK(refused([](auto& p) { p.k.extents.given[2] = p.v.extents.given[3] = 0; }) == "no error");
        blocks::trial wider(where, {.seqlen_q = 30, .seqlen_k = 48, .head_dim = 80}, 1);
        CHECK(error_message_of([&] { blocks::attention::launch(where, wider.upload()); }) ==
              "q.extents[3] and the head_dim of v: 80, 80; the compiled head dims are 64 x 64");
        paged_scales::trial pages(where, {.seqlen_q = 30, .seqlen_k = 128, .page_size = 64}, 1);
        const auto good_pages = pages.upload();
        const auto refused_pages = [&](auto change) {
            auto bad = good_pages;
            change(bad);
            return error_message_of([&] { paged_scales::attention::launch(where, bad); });
        };
        CHECK(refused_pages([](auto&) {}) == "no error");
        CHECK(refused_pages([](auto& p) { p.k.extents.given[2] = p.v.extents.given[2] = 48; }) ==
              "k.extents[2]: 48; with this fp8_scaling::per_page the rows of a page are a multiple of 64");
        CHECK(refused_pages([](auto& p) { p.k.extents.given[2] = p.v.extents.given[2] = 40; }) ==
              "k.extents[2]: 40; the rows of a page are a multiple of 16");
        CHECK(refused_pages([](auto& p) { p.paged_kv.max_blocks_per_seq = 0; }) ==
              "paged_kv.max_blocks_per_seq: 0; at least one page is needed");
        CHECK(refused([&](auto& p) { p.paged_kv = good_pages.paged_kv; }) ==
              "paged_kv.max_blocks_per_seq: 2; must be 0 unless the layout is kv_layout::paged");
        float scale = 1;
        CHECK(refused([&](auto& p) {
                  p.out_descale.pointer = &scale;
              }).ends_with("; must be null: only an e4m3 output has scales"));
        if (where == world::device) continue;
        pages.k_scales.values[pages.block_table.values[1]] = INFINITY;
        CHECK(error_message_of([&] { paged_scales::attention::launch(where, pages.upload()); }) ==
              str_cat("k_descale of page ", pages.block_table.values[1],
                      ", head 0: inf; scales are finite and not negative"));
        there.v_scales.values[1] = -2;
        CHECK(error_message_of([&] { blocks::attention::launch(where, there.upload()); }) ==
              "v_descale of batch entry 0, head 1: -2; scales are finite and not negative");
    }
}

#if defined(__CUDACC__)
// A tile shape that the launcher does not choose.
struct shared_sums_kernel {
    using trial = fp8_trial<bf16, fp8_scaling::per_tensor, fp8_v_layout::row_major>;
    struct attention {
        static void launch(world where, const attention_fp8_problem<bf16>& p) {
            using kernel = attention_fp8_hopper<bf16, 128, full_mask, score_mod::identity, fp8_scaling::per_tensor,
                                                fp8_accumulation::promoted, fp8_v_layout::row_major,
                                                attention_fp8_shape{.block_n = 224, .promotion_interval = 4}>;
            const auto arguments = attention_fp8_arguments<kernel>(p, full_mask{}, score_mod::identity{}, 1);
            imbrex::launch<kernel>(where, {1}, arguments, nullptr);
        }
    };
};

// Only the device accumulates 8-bit products with fewer bits than fp32.
TEST_CASE("attention_fp8: a promoted sum is more accurate over many keys; all head dims") {
    constexpr attention_fp8_options fast_options{.head_dims = {128, 256}, .accumulation = fast};
    using exact = fp8_kernel<bf16, wide, full_mask, fp8_scaling::per_tensor>;
    using rough = fp8_kernel<bf16, fast_options, full_mask, fp8_scaling::per_tensor>;
    const auto keep = [](const attention_extents&, int, int) { return true; };
    // Equal scores: P is exact, and only the sum of P V is rounded. V does not average to zero.
    const auto error_of = [&](auto kernel) {
        typename decltype(kernel)::trial there(world::device, {.seqlen_q = 64, .seqlen_k = 16384, .head_dim = 128}, 1);
        for (e4m3& x : there.q.values) x = e4m3(0.0f);
        for (e4m3& x : there.v.values) x = e4m3(std::abs(float(x)));
        decltype(kernel)::attention::launch(world::device, there.upload());
        return there.compare(keep, unchanged).average;
    };
    const double promoted_error = error_of(exact{}), fast_error = error_of(rough{});
    MESSAGE("average relative error: promoted " << promoted_error << ", fast " << fast_error);
    CHECK(promoted_error < 0.005);
    // In shared memory, after 8 tiles of 32 keys and after 4 of 224.
    constexpr attention_fp8_options deep_options{.head_dims = {256}};
    using deep = fp8_kernel<bf16, deep_options, full_mask, fp8_scaling::per_tensor>;
    CHECK(error_of(deep{}) < 0.005);
    deep::check({.heads = 2, .kv_heads = 1, .seqlen_q = 200, .seqlen_k = 700, .head_dim = 256});
    const double shared_error = error_of(shared_sums_kernel{});
    MESSAGE("average relative error: promoted after 896 keys " << shared_error);
    CHECK(shared_error < 0.005);
    CHECK(fast_error > 2 * promoted_error);
    rough::check({.heads = 2, .kv_heads = 1, .seqlen_q = 200, .seqlen_k = 700, .head_dim = 256});
    rough::check({.heads = 2, .kv_heads = 1, .seqlen_q = 200, .seqlen_k = 700, .head_dim = 128});
    constexpr attention_fp8_options narrow_fast{.head_dims = {64}, .accumulation = fast};
    using three = fp8_kernel<bf16, narrow_fast, full_mask, fp8_scaling::per_head>;
    for (const int seqlen_q : {50, 200, 300}) {  // warpgroups without queries
        three::check({.heads = 2, .kv_heads = 2, .seqlen_q = seqlen_q, .seqlen_k = 330});
    }
    using rough_causal = fp8_kernel<bf16, fast_options, causal_mask, fp8_scaling::per_head>;
    rough_causal::check({.heads = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 128});
    rough_causal::check({.heads = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 256});
    using wide_causal = fp8_kernel<bf16, wide, causal_mask, fp8_scaling::per_block<>>;
    wide_causal::check({.heads = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 128});
    constexpr attention_fp8_options wide_k_major{.head_dims = {128}, .v_layout = k_major};
    using across = fp8_kernel<bf16, wide_k_major, full_mask, fp8_scaling::per_head>;
    across::check({.heads = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 128});
}
#endif
