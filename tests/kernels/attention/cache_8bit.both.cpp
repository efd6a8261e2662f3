// Attention with 16-bit queries over a paged KV cache of e4m3 or int8: both types of queries, scales per tensor, head
// and page, page sizes, masks, lengths, head dims, partial outputs, keys that paged_append wrote, argument checks; no
// hazard in any schedule, and every mutation of the synchronisation detected. The reference in double reads the
// dequantised cache; memory behind the last keys is NaN or the largest value.
#include <imbrex/kernels/attention_forward.hpp>
#include <imbrex/kernels/paged_append.hpp>

#include "kernels/paged_decode/eight_bits.hpp"
#include "synchronisation.hpp"

#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <class In, class Cache, attention_head_dim_set HeadDims, class Mask = window_mask,
          class Score = score_mod::identity>
using attention_over =
    attention_forward<In, attention_options{.head_dims = HeadDims, .kv = kv_layout::paged}, Mask, Score, Cache>;

constexpr scales_of nothing = scales_of::nothing, whole = scales_of::all, heads = scales_of::heads,
                    pages = scales_of::pages;
using kinds = std::vector<std::pair<scales_of, scales_of>>;

// `mask` and `score` are functions of the trial.
template <class Attention, class In, class Cache, class MaskOf, class ScoreOf>
void check_with(const attention_test_case& given, scales_of of_keys, scales_of of_values, const MaskOf& mask,
                const ScoreOf& score) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.page_size);
        CAPTURE(int(of_keys));
        CAPTURE(int(of_values));
        CAPTURE(int(given.lie));
        eight_bit_trial<In, Cache> trial(where, given, 1, of_keys, of_values);
        const auto problem = trial.upload();
        CHECK(Attention::choice(where, problem) ==
              (given.lie == layout::unaligned ? attention_kernel_kind::ampere_class : attention_kernel_kind::hopper));
        Attention::launch(where, problem, mask(trial.there), score(trial.there));
        const auto worst = trial.there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
}
template <class Attention, class In, class Cache>
void check(const attention_test_case& given, scales_of of_keys, scales_of of_values) {
    check_with<Attention, In, Cache>(
        given, of_keys, of_values,
        [](auto& there) {
            return window_mask{there.c.left, there.c.right};
        },
        [](auto&) { return score_mod::identity{}; });
}

using e4m3_narrow = attention_over<bf16, e4m3, attention_head_dim_set{64}>;
using int8_wide = attention_over<fp16, std::int8_t, attention_head_dim_set{128}, causal_mask>;
using int8_scored = attention_over<bf16, std::int8_t, attention_head_dim_set{64}, any_mask, any_score>;
using e4m3_half = attention_over<fp16, e4m3, attention_head_dim_set{64}>;

// Chunked prefill: the last query is aligned with the last key; some sequences are empty.
attention_test_case chunks() {
    attention_test_case c{.heads = 4, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 800};
    c.packed = {{130, 200}, {0, 30}, {1, 1}, {100, 64}, {33, 0}, {5, 470}};
    c.right = 0;
    return c;
}
attention_test_case padded() {
    attention_test_case c{.batches = 4, .heads = 3, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 300};
    c.seqused_k = {300, 0, 1, 130};
    c.right = 0;
    return c;
}

}  // namespace

TEST_CASE("8-bit KV cache: e4m3 and bf16, scales of every kind, pages of any size") {
    attention_test_case c = chunks();
    for (const auto& [page_size, of_keys, of_values] :
         {std::tuple{16, pages, pages}, std::tuple{64, heads, heads}, std::tuple{256, whole, nothing},
          std::tuple{48, pages, heads}, std::tuple{128, heads, pages}}) {
        c.page_size = page_size;
        check<e4m3_narrow, bf16, e4m3>(c, of_keys, of_values);
    }
    c = padded();
    c.page_size = 64, c.lie = layout::batch_head_sequence, c.sinks = true;
    check<e4m3_narrow, bf16, e4m3>(c, heads, pages);
}

TEST_CASE("8-bit KV cache: the Ampere-class kernel, where TMA cannot load") {
    attention_test_case c = chunks();
    c.lie = layout::unaligned;
    for (const auto& [page_size, kind] : {std::pair{16, pages}, std::pair{64, heads}}) {
        c.page_size = page_size;
        check<e4m3_narrow, bf16, e4m3>(c, kind, kind);
    }
    c.page_size = 48, c.left = 60;
    check<e4m3_half, fp16, e4m3>(c, pages, whole);
}

TEST_CASE("8-bit KV cache: int8 and fp16, head_dim 128, GQA, causal") {
    attention_test_case c{.batches = 2,
                          .heads = 4,
                          .kv_heads = 2,
                          .seqlen_q = 140,
                          .seqlen_k = 300,
                          .head_dim_qk = 128,
                          .head_dim_v = 128,
                          .page_size = 64};
    c.seqused_k = {300, 170};
    c.right = 0;
    const auto causal = [](auto&) { return causal_mask{}; };
    const auto unchanged = [](auto&) { return score_mod::identity{}; };
    check_with<int8_wide, fp16, std::int8_t>(c, heads, heads, causal, unchanged);
    c.page_size = 16, c.head_dim_qk = 112, c.head_dim_v = 80;
    check_with<int8_wide, fp16, std::int8_t>(c, pages, pages, causal, unchanged);
}

TEST_CASE("8-bit KV cache: windows, e4m3 and fp16") {
    attention_test_case c{
        .batches = 2, .heads = 2, .seqlen_q = 200, .seqlen_k = 500, .page_size = 48, .left = 60, .right = 0};
    check<e4m3_half, fp16, e4m3>(c, heads, whole);
    c.left = 20, c.right = 30, c.page_size = 32;
    check<e4m3_half, fp16, e4m3>(c, pages, pages);
}

TEST_CASE("8-bit KV cache: score_mods, masks with holes") {
    for (const layout lie : {layout::batch_sequence_head, layout::unaligned}) {
        attention_test_case c{.batches = 2, .heads = 2, .seqlen_q = 100, .seqlen_k = 200, .lie = lie, .page_size = 64};
        c.capped = c.sloped = c.biased = c.own_score = c.bounded = c.holes = true;
        c.right = 0;
        check_with<int8_scored, bf16, std::int8_t>(
            c, heads, heads, [](auto& there) { return there.mask(); }, [](auto& there) { return there.score(); });
    }
}

#if !defined(IMBREX_FEW_SHAPES)
TEST_CASE("8-bit KV cache: all head dims, both kernels") {
    using attention = attention_over<bf16, e4m3, attention_head_dim_set{96, attention_head_dims(192, 128), 192, 256}>;
    attention_test_case c = chunks();
    for (const auto& [qk, v] : {std::pair{96, 96}, std::pair{192, 128}, std::pair{192, 192}, std::pair{256, 256}}) {
        c.head_dim_qk = qk, c.head_dim_v = v;
        for (const layout lie : {layout::batch_sequence_head, layout::unaligned}) {
            c.lie = lie;
            c.page_size = 64;
            check<attention, bf16, e4m3>(c, heads, heads);
            c.page_size = 16;
            check<attention, bf16, e4m3>(c, pages, pages);
        }
    }
}
#endif

TEST_CASE("8-bit KV cache: split-KV partial outputs contain the scales") {
    using attention = attention_forward<
        bf16, attention_options{.head_dims = {64}, .kv = kv_layout::paged, .output = attention_output_mode::partial},
        window_mask, score_mod::identity, e4m3>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{
            .batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 70, .seqlen_k = 200, .page_size = 64};
        eight_bit_trial<bf16, e4m3> trial(where, c, 1, heads, heads);
        const auto whole = trial.upload();
        buffer<float> out(where, trial.there.at.outputs), row_max(where, std::size_t(c.batches) * c.heads * c.seqlen_q),
            row_sum(where, row_max.values.size());
        attention::problem p;
        p.q = whole.q, p.k = whole.k, p.v = whole.v;
        p.out = trial.there.at.out.view(out.upload());
        p.row_max = batch_head_rows(row_max.upload(), c.heads, c.seqlen_q);
        p.row_sum = batch_head_rows(row_sum.upload(), c.heads, c.seqlen_q);
        p.seqused_k = whole.seqused_k;
        p.paged_kv = whole.paged_kv;
        p.k_scales = whole.k_scales, p.v_scales = whole.v_scales;
        attention::launch(where, p, window_mask{c.left, c.right});
        for (auto* one : {&out, &row_max, &row_sum}) one->download();
        std::vector<double> found(out.values.size()), logarithms(row_max.values.size());
        trial.there.each_row([&](std::size_t place, std::size_t number) {
            const double sum = row_sum.values[number];
            logarithms[number] = row_max.values[number] + std::log2(sum);
            for (int i = 0; i < c.head_dim_v; ++i) found[place + i] = out.values[place + i] / sum;
        });
        const auto worst = trial.there.compare(found, logarithms);
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
}

TEST_CASE("8-bit KV cache: chunked prefill of what paged_append wrote") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.heads = 4, .kv_heads = 2, .seqlen_q = 230, .seqlen_k = 500, .page_size = 16};
        c.packed = {{130, 200}, {1, 1}, {99, 290}};
        c.right = 0;
        eight_bit_trial<bf16, e4m3> trial(where, c, 3, heads, pages);
        auto& there = trial.there;
        const auto p = trial.upload();
        // The keys and values of all sequences, one after the other, into a cache of NaN.
        const int tokens = 491, row = c.kv_heads * 64;
        buffer<bf16> k(where, std::size_t(tokens) * row), v(where, k.values.size());
        buffer<int> starts(where, 4, 0);
        for (const attention_member& one : there.members) {
            starts.values[one.number + 1] = one.first_key + one.seqlen_k;
            for (int key = 0; key < one.seqlen_k; ++key) {
                for (int head = 0; head < c.kv_heads; ++head) {
                    const std::size_t to = std::size_t(one.first_key + key) * row + head * 64;
                    std::copy_n(&there.inputs.values[there.at.key_at(there.at.k, one, head, key)], 64, &k.values[to]);
                    std::copy_n(&there.inputs.values[there.at.key_at(there.at.v, one, head, key)], 64, &v.values[to]);
                }
            }
        }
        buffer<e4m3> cache(where, trial.cache.values.size(), e4m3::from_bits(0x7f));
        e4m3* const written = cache.upload();
        paged_append_problem<bf16, e4m3> append{
            .k = batch_sequence_head<const bf16>(k.upload(), 1, tokens, c.kv_heads, 64),
            .v = batch_sequence_head<const bf16>(v.upload(), 1, tokens, c.kv_heads, 64),
            .k_cache = there.at.k.view(written),
            .v_cache = there.at.v.view(written),
            .k_scales = p.k_scales,
            .v_scales = p.v_scales,
            .paged_kv = p.paged_kv,
            .seqused_k = p.seqused_k,
            .varlen = {3, starts.upload()}};
        paged_append<bf16, e4m3>::launch(where, append);
        auto reading = p;
        reading.k = there.at.k.view(static_cast<const e4m3*>(written));
        reading.v = there.at.v.view(static_cast<const e4m3*>(written));
        e4m3_narrow::launch(where, reading, window_mask{there.c.left, there.c.right});
        const auto worst = there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
    }
}

TEST_CASE("8-bit KV cache: rejects invalid scales") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        eight_bit_trial<bf16, e4m3> trial(
            where, {.batches = 2, .heads = 2, .seqlen_q = 30, .seqlen_k = 40, .page_size = 32}, 1, heads, pages);
        auto p = trial.upload();
        p.k_scales.head_stride = -1;
        CHECK(error_message_of([&] { e4m3_narrow::launch(where, p); }) ==
              "k_scales.head_stride: -1; it must not be negative");
        p = trial.upload();
        p.v_scales.page_stride = -2;
        CHECK(error_message_of([&] { e4m3_narrow::launch(where, p); }) ==
              "v_scales.page_stride: -2; it must not be negative");
    }
}

#if !defined(__CUDACC__)
namespace {

// Three varlen sequences of two heads that share a KV head, in pages of 16, each with its own scale.
struct small_8bit_cache {
    static constexpr int head_dim = 32, heads = 2, query_rows = 90, page_size = 16, pages = 12, per_sequence = 6;
    std::vector<bf16> q = std::vector<bf16>(query_rows * heads * head_dim), out = q;
    std::vector<e4m3> k = std::vector<e4m3>(pages * page_size * head_dim), v = k;
    std::vector<float> scales = std::vector<float>(pages);
    std::vector<int> cu_seqlens_q{0, 70, 80, 90}, seqused_k{85, 45, 15},
        table{3, 7, 1, 0, 9, 10, 11, 4, 5, -1, -1, -1, 2, -1, -1, -1, -1, -1};

    small_8bit_cache() {
        fill_random(q, 1);
        fill_random(k, 2);
        fill_random(v, 3);
        fill_random(scales, 4, 0.5f, 2.0f);
    }

    template <class Kernel>
    void check_kernel(const std::string& name, const typename Kernel::arguments& given) const {
        auto args = given;
        args.scale = 0.25f;
        args.scale_log2 = scale_log2_after(args.score, args.scale);
        args.q_heads_per_kv_head = heads;
        args.scheduler = {3, heads, attention_tile_scheduler::varlen_blocks(query_rows, 3, Kernel::block_m), 0};
        args.lengths = {{0, 0, seqused_k.data(), cu_seqlens_q.data()}, table.data(), per_sequence, page_size};
        args.k_scales = args.v_scales = kv_scales_per_page(scales.data(), 1);
        check_synchronisation<Kernel>(name, {1}, args);
    }
};

}  // namespace

TEST_CASE("8-bit KV cache: no hazard in any schedule, and the checker detects every mutation") {
    small_8bit_cache there;
    const auto q = batch_sequence_head<const bf16>(there.q.data(), 1, there.query_rows, there.heads, there.head_dim);
    const auto out = batch_sequence_head(there.out.data(), 1, there.query_rows, there.heads, there.head_dim);
    const auto k = batch_sequence_head<const e4m3>(there.k.data(), there.pages, there.page_size, 1, there.head_dim);
    const auto v = batch_sequence_head<const e4m3>(there.v.data(), there.pages, there.page_size, 1, there.head_dim);

    using hopper = attention_hopper_8bit_cache<bf16, e4m3, 32, 32, causal_mask, score_mod::identity,
                                               attention_shape{.block_n = 64}>;
    hopper::arguments by_tma{};
    by_tma.q = make_tma_tensor<hopper::q_tile>(q);
    by_tma.k = make_tma_tensor<hopper::k_cache_tile>(k, tma_use::load, 16);
    by_tma.v = make_tma_tensor<hopper::v_cache_tile>(v, tma_use::load, 16);
    by_tma.out = make_tma_tensor<hopper::out_tile>(out, tma_use::store);
    by_tma.out_view = out;
    there.check_kernel<hopper>("attention to an 8-bit cache", by_tma);

    using ampere = attention_ampere<bf16, 32, 32, causal_mask, score_mod::identity,
                                    attention_ampere_shape{.warps = 2, .block_n = 32, .stages = 1},
                                    attention_output_mode::normalised, paged_seqlens, e4m3>;
    ampere::arguments by_warps{};
    by_warps.q = q;
    by_warps.k = k;
    by_warps.v = v;
    by_warps.out = out;
    there.check_kernel<ampere>("attention to an 8-bit cache on sm_80", by_warps);
}
#endif
