// Tests of simt_paged_attention through its launcher, against a reference in double: types, head dims, heads, lengths
// at every boundary, prefill and decode in one launch, masks and score modifiers; unused memory is NaN. Invalid
// arguments.
#include <imbrex/kernels/simt_paged_attention.hpp>

#include "kernels/paged_decode/trial.hpp"
#include "synchronisation.hpp"

#include <random>
#include <string>
#include <type_traits>
#include <vector>

using namespace imbrex;
using namespace imbrex_test;

namespace {

// Fewer head dims for bf16, fp16 and score modifiers, to limit compile time.
template <class In, bool Scored>
constexpr head_dim_set tested_head_dims = Scored || std::is_same_v<In, bf16> ? head_dim_set{64, 256}
                                          : std::is_same_v<In, fp16>         ? head_dim_set{64}
                                                                             : all_simt_head_dims;

// Runs twice and compares bits.
template <class In, bool Scored = false>
void check_rows(const attention_test_case& given, unsigned seed = 1) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(given.heads);
        CAPTURE(given.kv_heads);
        CAPTURE(given.seqlen_q);
        CAPTURE(given.seqlen_k);
        CAPTURE(given.head_dim_qk);
        CAPTURE(given.head_dim_v);
        CAPTURE(given.page_size);
        attention_trial<In> there(where, given, seed);
        const auto launch = [&] {
            const auto problem = there.upload();
            if constexpr (Scored) {
                simt_paged_attention<In, tested_head_dims<In, Scored>, any_mask, any_score>::launch(
                    where, problem, there.mask(), there.score());
            } else {
                simt_paged_attention<In, tested_head_dims<In, Scored>, any_mask>::launch(where, problem, there.mask());
            }
            return there.download();
        };
        const auto bits = launch();
        const auto worst = there.worst();
        CHECK(worst.out <= 1);
        CHECK(worst.lse2 <= 1);
        CHECK(launch() == bits);
    }
}

}  // namespace

TEST_CASE("all head_dim_qk and head_dim_v") {
    for (const int head_dim : {8, 16, 24, 32, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256}) {
        attention_test_case c{.heads = 6, .kv_heads = 2, .seqlen_q = 3, .seqlen_k = 75, .page_size = 16};
        c.head_dim_qk = c.head_dim_v = head_dim;
        c.right = 0;
        check_rows<float>(c);
        c.head_dim_v = 264 - head_dim;
        check_rows<float>(c);
        check_rows<bf16>(c);
    }
}

TEST_CASE("any number of query heads per KV head") {
    for (const int sharing : {1, 2, 3, 7, 8, 15, 16, 17, 40}) {
        attention_test_case c{.batches = 2, .heads = 2 * sharing, .kv_heads = 2, .seqlen_q = 4, .seqlen_k = 90};
        c.head_dim_qk = c.head_dim_v = 32;
        c.page_size = 32;
        c.right = 0;
        check_rows<float>(c);
    }
}

TEST_CASE("lengths at every boundary, pages of any size in any order") {
    attention_test_case c{.batches = 14, .heads = 7, .kv_heads = 1, .seqlen_q = 1, .seqlen_k = 200};
    c.seqused_k = {200, 0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129};
    c.head_dim_qk = c.head_dim_v = 48;
    c.right = 0;
    for (const int page_size : {16, 32, 48, 64, 256}) {
        c.page_size = page_size;
        for (const int queries : {1, 5}) {
            c.seqlen_q = queries;
            for (const layout lie : {layout::batch_sequence_head, layout::batch_head_sequence, layout::unaligned}) {
                c.lie = lie;
                check_rows<float>(c);
            }
            check_rows<fp16>(c);
        }
    }
}

TEST_CASE("prompts and single tokens in one launch") {
    attention_test_case c{.heads = 7, .kv_heads = 1, .page_size = 32};
    c.packed = {{1, 100}, {0, 50}, {70, 70}, {1, 1}, {33, 96}, {0, 0}, {5, 2}, {1, 64}};
    c.seqlen_q = 111 + 4, c.seqlen_k = 383;
    c.head_dim_qk = c.head_dim_v = 32;
    c.right = 0;
    check_rows<float>(c);
    check_rows<bf16>(c);
    c.left = 20;
    check_rows<float>(c);
}

TEST_CASE("window masks, custom masks, sinks and softcap") {
    attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 20, .seqlen_k = 300, .page_size = 16};
    c.seqused_k = {300, 90};
    c.left = 40, c.right = 0, c.sinks = true;
    check_rows<float>(c);
    c.holes = c.bounded = true;
    check_rows<float>(c);
    c.capped = c.sloped = true;
    check_rows<float, true>(c);
    c.left = c.right = unbounded;
    check_rows<float, true>(c);
}

TEST_CASE("built-in masks and score modifiers") {
    const auto check = [](attention_test_case c, auto mask, auto score) {
        for (const world where : worlds()) {
            CAPTURE(name_of(where));
            attention_trial<float> there(where, c, 1);
            const auto problem = there.upload();
            simt_paged_attention<float, head_dim_set{64}, decltype(mask), decltype(score)>::launch(where, problem, mask,
                                                                                                   score);
            CHECK(there.worst().out <= 1);
            CHECK(there.worst().lse2 <= 1);
        }
    };
    attention_test_case c{.batches = 2, .heads = 7, .kv_heads = 1, .seqlen_q = 30, .seqlen_k = 100, .page_size = 48};
    c.seqused_k = {100, 45};
    check(c, full_mask{}, score_mod::identity{});
    c.right = 0;
    check(c, causal_mask{}, score_mod::identity{});
    c.left = 17;
    check(c, window_mask{17, 0}, score_mod::identity{});
    c.capped = true;
    check(c, window_mask{17, 0}, score_mod::softcap{attention_trial<float>::cap});
}

TEST_CASE_TEMPLATE("a cache of 16 or 8 bits with float queries", Cache, bf16, e4m3) {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 9, .seqlen_k = 70, .page_size = 16};
        c.right = 0;
        attention_trial<float> there(where, c, 1);
        // Values that the cache type holds exactly; masked ones stay as they are.
        std::vector<float>& values = there.inputs.values;
        buffer<Cache> cache(where, values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            cache.values[i] = Cache(values[i]);
            values[i] = float(cache.values[i]);
        }
        const auto whole = there.upload();
        attention_problem<float, attention_output_mode::normalised, Cache> p;
        p.q = whole.q, p.out = whole.out;
        p.k = there.at.k.template view<const Cache>(cache.upload());
        p.v = there.at.v.template view<const Cache>(cache.upload());
        p.lse2 = whole.lse2;
        p.seqused_k = whole.seqused_k;
        p.paged_kv = whole.paged_kv;
        simt_paged_attention<float, head_dim_set{64}, causal_mask, score_mod::identity, Cache>::launch(where, p);
        CHECK(there.worst().out <= 1);
        CHECK(there.worst().lse2 <= 1);
    }
}

TEST_CASE("random problems") {
    std::mt19937 random(5);
    for (int i = 0; i < 24; ++i) {
        const int depths[] = {8, 32, 64, 104, 256};
        const auto kind = random() % 4;
        attention_test_case c = random_decode(random, 16, kind == 0, false);
        c.head_dim_qk = depths[random() % 5];
        c.head_dim_v = kind == 2 ? 48 : random() % 2 == 0 ? c.head_dim_qk : 8 + 8 * static_cast<int>(random() % 32);
        if (c.packed.empty() && random() % 2 == 0) c.seqlen_q = 1 + static_cast<int>(random() % 40);
        CAPTURE(i);
        switch (kind) {
            case 0:
                check_rows<float, true>(c, 10 * i);
                break;
            case 1:
                check_rows<bf16>(c, 10 * i);
                break;
            case 2:
                check_rows<fp16>(c, 10 * i);
                break;
            default:
                check_rows<float>(c, 10 * i);
        }
    }
}

TEST_CASE("an empty problem does nothing, and an empty cache gives zero") {
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_trial<float> none(where, {.batches = 2, .heads = 2, .seqlen_q = 3, .seqlen_k = 0, .page_size = 16},
                                    1);
        auto empty = none.upload();
        empty.k.extents.given[0] = empty.v.extents.given[0] = 0;
        empty.k.pointer = empty.v.pointer = nullptr;
        empty.paged_kv = {};
        simt_paged_attention<float, all_simt_head_dims, any_mask>::launch(where, empty, none.mask());
        CHECK(none.worst().out == 0);
        CHECK(none.lse2.values == std::vector<float>(none.lse2.values.size(), -INFINITY));
        empty.q.extents.given[2] = empty.out.extents.given[2] = 0;
        CHECK_NOTHROW(simt_paged_attention<float, all_simt_head_dims, any_mask>::launch(where, empty, none.mask()));
    }
}

TEST_CASE("rejects invalid arguments and writes nothing") {
    using attend = simt_paged_attention<float, head_dim_set{64}, causal_mask>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_test_case c{.batches = 2, .heads = 4, .kv_heads = 2, .seqlen_q = 1, .seqlen_k = 40, .page_size = 32};
        c.seqused_k = {40, 20};
        attention_trial<float> there(where, c, 1);
        const attention_problem<float> good = there.upload();
        const auto refused = [&](auto change) {
            attention_problem<float> bad = good;
            change(bad);
            return error_message_of([&] { attend::launch(where, bad); });
        };
        CHECK(refused([](auto& p) { p.k.extents.given[2] = p.v.extents.given[2] = 24; }) ==
              "k.extents[2]: 24; the rows of a page are a multiple of 16");
        CHECK(refused([](auto& p) { p.q.extents.given[3] = 12; }) ==
              "q.extents[3]: 12; head_dim is a multiple of 8 from 8 to 256");
        CHECK(error_message_of([&] {
                  simt_paged_attention<float, head_dim_set{16, 32}, causal_mask>::launch(where, good);
              }) == "v.extents[3]: 64; instantiated head dims: 16, 32");
        CHECK(refused([](auto& p) { p.paged_kv.block_table = nullptr; }) ==
              "paged_kv.block_table: null; 2 x 2 numbers are needed");
        CHECK(refused([](auto& p) { p.out.strides.given[1] = 8; }) ==
              "out.strides[1]: 8; must be at least 64: heads must not overlap");
        CHECK(refused([](auto& p) { p.q.extents.given[1] = p.out.extents.given[1] = 3; }) ==
              "k.extents[1]: 2 KV heads; the 3 heads of q must be a multiple of that");
        CHECK(refused([](auto& p) { p.lse2.head_stride = 0; }) ==
              "lse2.head_stride: 0; must be at least 1, the number of queries");
        CHECK(refused([](auto& p) { p.scale = -1.0f; }) == "scale: -1; a positive number is needed");
        if (where != world::device) {
            const std::vector<int> too_long{40, 65};
            CHECK(refused([&](auto& p) { p.seqused_k = too_long.data(); }) ==
                  "seqused_k[1]: 65; the pages of a sequence have room for 64 keys, and none may be negative");
            std::vector<int> wrong = there.table.values;
            wrong[2] = 6;
            CHECK(refused([&](auto& p) { p.paged_kv.block_table = wrong.data(); }) ==
                  "paged_kv.block_table[2]: 6; there are 6 pages");
        }
        there.download();
        for (const float value : there.out.values) REQUIRE(std::isnan(value));
    }
}

#if !defined(__CUDACC__)
TEST_CASE("no hazard in any schedule; has no synchronisation to mutate") {
    using attend = simt_paged_attention<float, head_dim_set{32}, causal_mask>;
    using kernel = attend::kernel<32>;
    attention_test_case c{.batches = 2, .heads = 6, .kv_heads = 2, .seqlen_q = 6, .seqlen_k = 70, .page_size = 16};
    c.head_dim_qk = c.head_dim_v = 32;
    c.seqused_k = {70, 3};
    c.right = 0;
    attention_trial<float> there(world::host, c, 1);
    const auto arguments = attend::arguments_of<32>(there.upload(), {}, {});
    for (const int blocks : {1, 3}) {
        check_without_synchronisation<kernel>({blocks}, arguments);
        CHECK(there.worst().out <= 1);
    }
}
#endif
