// Hopper attention against plain loops in double: ragged lengths, masks, score_mods, GQA; no hazard in any schedule,
// and every mutation of its synchronisation detected.
#include <imbrex/kernels/attention/hopper.hpp>

#include "kernels/attention/reference.hpp"
#include "synchronisation.hpp"

#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int HeadDimQK, int HeadDimV, attention_shape Shape = attention_shape{}, class Mask = full_mask,
          class Score = score_mod::identity>
void check_attention(
    int blocks, const attention_case& sizes, Mask mask = {}, Score score = {}, int l2_sections = 0,
    std::function<double(const attention_extents&, int, int, double)> expected_score =
        [](const attention_extents&, int, int, double x) { return x; }) {
    using kernel = attention_hopper<bf16, HeadDimQK, HeadDimV, Mask, Score, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.seqlen_q);
        CAPTURE(sizes.seqlen_k);
        attention_tensors<bf16, HeadDimQK, HeadDimV> tensors(where, sizes, 1);
        run<kernel>(where, {blocks}, tensors.template send<kernel>(mask, score, 0.25f, l2_sections), 4);
        const auto worst = tensors.compare(
            0.25f, [&](const attention_extents& s, int query, int key) { return mask.keep(s, query, key); },
            expected_score);
        CHECK(worst.out <= 0.01);
        CHECK(worst.lse2 <= 0.001);
    }
}

struct every_third : mask_base {
    IMBREX_FN bool keep(const attention_extents& s, int query, int key) const {
        return (query + key + s.head) % 3 == 0;
    }
};

// Earlier keys have larger scores, so that the row maximum grows with every tile.
struct backwards {
    float slope;
    IMBREX_KERNEL float operator()(const attention_extents&, int, int key, float x) const {
        return x - slope * static_cast<float>(key);
    }
};

}  // namespace

TEST_CASE("computes full attention") {
    check_attention<64, 64>(2, {.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 150, .seqlen_k = 300});
    check_attention<128, 128>(1, {.heads = 2, .kv_heads = 2, .seqlen_q = 129, .seqlen_k = 257});
    check_attention<64, 64>(1, {.seqlen_q = 1, .seqlen_k = 1});
    // Three warpgroups, some without queries in some blocks: the third in the first of two, the third in both, two of
    // them.
    constexpr attention_shape three{
        .consumer_warpgroups = 3, .block_n = 32, .producer_registers = 32, .consumer_registers = 160};
    for (const int seqlen_q : {300, 200, 400, 50}) {
        check_attention<64, 64, three>(2, {.heads = 3, .kv_heads = 1, .seqlen_q = seqlen_q, .seqlen_k = 170},
                                       full_mask{}, score_mod::identity{}, seqlen_q == 400 ? 2 : 0);
        check_attention<64, 64, three>(2, {.heads = 3, .kv_heads = 1, .seqlen_q = seqlen_q, .seqlen_k = 400},
                                       causal_mask{}, score_mod::identity{}, 2);
    }
}

TEST_CASE("computes causal attention, the last query aligned with the last key; queries that see nothing give zero") {
    check_attention<64, 64>(2, {.heads = 2, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 300}, causal_mask{},
                            score_mod::identity{}, 1);
    check_attention<64, 64>(2, {.heads = 3, .kv_heads = 1, .seqlen_q = 100, .seqlen_k = 330}, causal_mask{},
                            score_mod::identity{}, 2);
    check_attention<64, 64>(1, {.seqlen_q = 200, .seqlen_k = 70}, causal_mask{});
}

TEST_CASE("applies masks: window, chunked, length, intersection, custom") {
    const attention_case sizes{.batches = 2, .heads = 2, .kv_heads = 1, .seqlen_q = 200, .seqlen_k = 333};
    check_attention<64, 64>(2, sizes, window_mask{70, 0});
    check_attention<64, 64>(2, sizes, window_mask{20, 30});
    check_attention<64, 64>(2, sizes, and_mask<causal_mask, chunked_mask>{{}, {96}});
    check_attention<64, 64>(2, sizes, every_third{});
}

TEST_CASE("applies softcap") {
    const attention_case sizes{.heads = 2, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 190};
    check_attention<64, 64>(2, sizes, causal_mask{}, score_mod::softcap{1.0f}, 0,
                            [](const attention_extents&, int, int, double x) { return std::tanh(x); });
    // By polynomial or by tanh: caps that change much, little or nothing, and a window whose first rows see nothing of
    // their first tiles.
    constexpr attention_shape relaxed{.rescaling = attention_rescaling::lazy};
    constexpr attention_shape three{3, 32, 2, 32, 160, true, attention_rescaling::lazy};
    for (const float cap : {1.0f, 6.0f, 1000.0f}) {
        const auto bent = [=](const attention_extents&, int, int, double x) { return cap * std::tanh(x / cap); };
        const score_mod::softcap score{cap};
        const attention_case longer{.heads = 2, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 460};
        const attention_case square{.heads = 2, .kv_heads = 2, .seqlen_q = 300, .seqlen_k = 300};
        check_attention<64, 64, relaxed>(2, longer, causal_mask{}, score, 0, bent);
        check_attention<64, 64>(2, longer, causal_mask{}, score, 0, bent);
        check_attention<64, 64, relaxed>(2, square, window_mask{200, -70}, score, 0, bent);
        check_attention<64, 64>(2, square, window_mask{200, -70}, score, 0, bent);
        check_attention<64, 64, three>(1, {.seqlen_q = 130, .seqlen_k = 300}, full_mask{}, score, 0, bent);
        check_attention<64, 64>(1, {.seqlen_q = 130, .seqlen_k = 300}, full_mask{}, score, 0, bent);
    }
}

TEST_CASE("lazy rescaling keeps the reference, or moves it when the row maximum grows far above it") {
    constexpr attention_shape relaxed{.block_n = 64, .rescaling = attention_rescaling::lazy};
    const attention_case sizes{.heads = 2, .kv_heads = 2, .seqlen_q = 130, .seqlen_k = 330};
    check_attention<64, 64, relaxed>(2, sizes);
    check_attention<64, 64, relaxed>(2, sizes, causal_mask{});
    constexpr attention_shape three{3, 32, 2, 32, 160, true, attention_rescaling::lazy};
    check_attention<64, 64, three>(2, sizes);
    check_attention<64, 64, three>(2, sizes, causal_mask{});
    check_attention<64, 64, three>(2, sizes, window_mask{100, 0});
    for (const float slope : {0.01f, 0.3f}) {
        check_attention<64, 64, relaxed>(
            2, sizes, full_mask{}, backwards{slope}, 0,
            [=](const attention_extents&, int, int key, double x) { return x - double{slope} * key; });
        check_attention<64, 64, three>(
            2, sizes, causal_mask{}, backwards{slope}, 0,
            [=](const attention_extents&, int, int key, double x) { return x - double{slope} * key; });
    }
}

namespace {

// All scores of a tile of 64 keys are far below zero or far above, as `above` says for the tile index; for every other
// 16 queries the reverse.
template <attention_shape Shape, class Mask, class Above>
void check_signs(Above above) {
    const attention_case sizes{.heads = 2, .kv_heads = 2, .seqlen_q = 200, .seqlen_k = 320};
    using kernel = attention_hopper<bf16, 64, 64, Mask, score_mod::identity, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_tensors<bf16, 64, 64> tensors(where, sizes, 1);
        for (int i = 0; i < sizes.seqlen_q * sizes.heads; ++i)
            tensors.q.values[i * 64] = bf16(i / sizes.heads / 16 % 2 == 0 ? 8.0f : -8.0f);
        for (int i = 0; i < sizes.seqlen_k * sizes.kv_heads; ++i)
            tensors.k.values[i * 64] = bf16(above(i / sizes.kv_heads / 64) ? 20.0f : -20.0f);
        run<kernel>(where, {2}, tensors.template send<kernel>(Mask{}, {}, 0.25f, 0), 4);
        const auto worst = tensors.compare(
            0.25f, [](const attention_extents& s, int query, int key) { return Mask{}.keep(s, query, key); },
            [](const attention_extents&, int, int, double x) { return x; });
        CHECK(worst.out <= 0.01);
        CHECK(worst.lse2 <= 0.001);
    }
}

template <attention_shape Shape>
void check_all_signs() {
    const auto always = [](int) { return true; };
    const auto first_half = [](int tile) { return tile < 2; };
    const auto every_other = [](int tile) { return tile % 2 == 0; };
    const auto last = [](int tile) { return tile == 4; };
    check_signs<Shape, full_mask>(always);
    check_signs<Shape, full_mask>(first_half);
    check_signs<Shape, full_mask>(every_other);
    check_signs<Shape, causal_mask>(always);
    check_signs<Shape, causal_mask>(first_half);
    check_signs<Shape, causal_mask>(last);
}

}  // namespace

TEST_CASE("accepts scores that are all negative, or all positive, in some tiles or in all") {
    check_all_signs<attention_shape{.block_n = 64}>();
    check_all_signs<attention_shape{3, 32, 2, 32, 160}>();
    const auto every_other = [](int tile) { return tile % 2 == 0; };
    check_signs<attention_shape{.block_n = 64, .rescaling = attention_rescaling::lazy}, full_mask>(every_other);
    check_signs<attention_shape{3, 32, 2, 32, 160, true, attention_rescaling::lazy}, causal_mask>(every_other);
}

#if !defined(__CUDACC__)
TEST_CASE("Hopper attention has no hazard in any schedule, and the checker detects every mutation") {
    // Three warpgroups, so that some skip tiles that others see.
    constexpr attention_shape three{
        .consumer_warpgroups = 3, .block_n = 32, .producer_registers = 32, .consumer_registers = 160};
    using exact = attention_hopper<bf16, 32, 32, causal_mask, score_mod::identity, three>;
    attention_tensors<bf16, 32, 32> tensors(world::host, {.heads = 4, .kv_heads = 1, .seqlen_q = 400, .seqlen_k = 200},
                                            1);
    // The keys end inside a tile.
    const auto padded = [](auto arguments, const int& length) {
        arguments.lengths.seqused_k = &length;
        return arguments;
    };
    const int seqlen_k = 200, fewer_keys = 100;
    check_synchronisation<exact>("attention", {2}, padded(tensors.send<exact>(), seqlen_k));

    // Without a mask, the third warpgroup has no queries in the first block of each head and is idle. Without ping-pong
    // each wait is necessary; with the order barrier, a warpgroup that has passed it knows that V has arrived, and that
    // one wait is redundant.
    constexpr attention_shape no_turns{3, 32, 2, 32, 160, false};
    using resting = attention_hopper<bf16, 32, 32, full_mask, score_mod::identity, no_turns>;
    using in_turns = attention_hopper<bf16, 32, 32, full_mask, score_mod::identity, three>;
    attention_tensors<bf16, 32, 32> ragged(world::host, {.heads = 6, .kv_heads = 1, .seqlen_q = 300, .seqlen_k = 100},
                                           1);
    check_synchronisation<resting>("attention, resting", {2}, padded(ragged.send<resting>(), fewer_keys));
    const auto ragged_in_turns = padded(ragged.send<in_turns>(), fewer_keys);
    check_silent<in_turns>({2}, ragged_in_turns);
    const host::mutation_score score = host::mutate<in_turns>({2}, ragged_in_turns);
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total() - 1);
    const std::string report = score.text();
    CHECK(report.find("SURVIVED: barrier wait by consumer") != std::string::npos);

    constexpr attention_shape two{.block_n = 32, .rescaling = attention_rescaling::lazy};
    using relaxed = attention_hopper<bf16, 32, 32, full_mask, backwards, two>;
    attention_tensors<bf16, 32, 32> others(world::host, {.heads = 4, .kv_heads = 1, .seqlen_q = 270, .seqlen_k = 100},
                                           1);
    check_synchronisation<relaxed>("attention, relaxed", {2}, padded(others.send<relaxed>({}, {0.3f}), fewer_keys));

    // Two warpgroups without a mask, which wait for P V in the middle of the softmax.
    using plain = attention_hopper<bf16, 32, 32, full_mask, score_mod::identity, attention_shape{.block_n = 32}>;
    check_synchronisation<plain>("attention, two groups", {2}, padded(others.send<plain>(), fewer_keys));
}
#endif
