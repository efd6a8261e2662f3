// Attention on Hopper against plain loops in double: ragged lengths, masks, scores, shared key heads; checked over many
// schedules, and every mutant of its synchronisation reported.
#include <imbrex/kernels/attention/hopper.hpp>

#include "kernels/attention/reference.hpp"
#include "synchronisation.hpp"

#include <string>

using namespace imbrex;
using namespace imbrex_test;

namespace {

template <int KeyDepth, int ValueDepth, attention_shape Shape = attention_shape{}, class Mask = full_mask,
          class Score = plain_score>
void check_attention(
    int blocks, const attention_case& sizes, Mask mask = {}, Score score = {}, int sections = 0,
    std::function<double(const attention_sequence&, int, int, double)> expected_score =
        [](const attention_sequence&, int, int, double x) { return x; }) {
    using kernel = attention_hopper<bf16, KeyDepth, ValueDepth, Mask, Score, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        CAPTURE(sizes.queries);
        CAPTURE(sizes.keys);
        attention_tensors<bf16, KeyDepth, ValueDepth> tensors(where, sizes, 1);
        run<kernel>(where, {blocks}, tensors.template send<kernel>(mask, score, 0.25f, sections), 4);
        const auto worst = tensors.compare(
            0.25f, [&](const attention_sequence& s, int query, int key) { return mask.keep(s, query, key); },
            expected_score);
        CHECK(worst.out <= 0.01);
        CHECK(worst.log2_sum <= 0.001);
    }
}

struct every_third : mask_without_shortcuts {
    IMBREX_FN bool keep(const attention_sequence& s, int query, int key) const {
        return (query + key + s.head) % 3 == 0;
    }
};

// Keys further back count more, so that every tile has larger scores than the one before.
struct backwards {
    float slope;
    IMBREX_KERNEL float operator()(const attention_sequence&, int, int key, float x) const {
        return x - slope * static_cast<float>(key);
    }
};

}  // namespace

TEST_CASE("attention of every query to every key") {
    check_attention<64, 64>(2, {.batches = 2, .heads = 2, .key_heads = 1, .queries = 150, .keys = 300});
    check_attention<128, 128>(1, {.heads = 2, .key_heads = 2, .queries = 129, .keys = 257});
    check_attention<64, 64>(1, {.queries = 1, .keys = 1});
    // Three groups, of which some have no queries in some blocks: the third in the first of two, in each of two, two of them.
    constexpr attention_shape three{.groups = 3, .columns = 32, .producer_registers = 32, .consumer_registers = 160};
    for (const int queries : {300, 200, 400, 50}) {
        check_attention<64, 64, three>(2, {.heads = 3, .key_heads = 1, .queries = queries, .keys = 170}, full_mask{},
                                       plain_score{}, queries == 400 ? 2 : 0);
        check_attention<64, 64, three>(2, {.heads = 3, .key_heads = 1, .queries = queries, .keys = 400}, causal_mask{},
                                       plain_score{}, 2);
    }
}

TEST_CASE("causal attention, the last query with the last key; queries that see nothing give zero") {
    check_attention<64, 64>(2, {.heads = 2, .key_heads = 2, .queries = 300, .keys = 300}, causal_mask{}, plain_score{},
                            1);
    check_attention<64, 64>(2, {.heads = 3, .key_heads = 1, .queries = 100, .keys = 330}, causal_mask{}, plain_score{},
                            2);
    check_attention<64, 64>(1, {.queries = 200, .keys = 70}, causal_mask{});
}

TEST_CASE("masks: windows, chunks, lengths, two at once, one of one's own") {
    const attention_case sizes{.batches = 2, .heads = 2, .key_heads = 1, .queries = 200, .keys = 333};
    check_attention<64, 64>(2, sizes, window_mask{70, 0});
    check_attention<64, 64>(2, sizes, window_mask{20, 30});
    check_attention<64, 64>(2, sizes, both_masks<causal_mask, chunked_mask>{{}, {96}});
    check_attention<64, 64>(2, sizes, every_third{});
}

TEST_CASE("scores bent by a cap") {
    const attention_case sizes{.heads = 2, .key_heads = 2, .queries = 130, .keys = 190};
    check_attention<64, 64>(2, sizes, causal_mask{}, softcap{1.0f}, 0,
                            [](const attention_sequence&, int, int, double x) { return std::tanh(x); });
    // By a curve or one by one: caps that bend much, a little, or nothing, and a window whose first rows see nothing of their first
    // tiles.
    constexpr attention_shape relaxed{.softmax = attention_softmax::relaxed};
    constexpr attention_shape three{3, 32, 2, 32, 160, true, attention_softmax::relaxed};
    for (const float cap : {1.0f, 6.0f, 1000.0f}) {
        const auto bent = [=](const attention_sequence&, int, int, double x) { return cap * std::tanh(x / cap); };
        const softcap score{cap};
        const attention_case longer{.heads = 2, .key_heads = 2, .queries = 130, .keys = 460};
        const attention_case square{.heads = 2, .key_heads = 2, .queries = 300, .keys = 300};
        check_attention<64, 64, relaxed>(2, longer, causal_mask{}, score, 0, bent);
        check_attention<64, 64>(2, longer, causal_mask{}, score, 0, bent);
        check_attention<64, 64, relaxed>(2, square, window_mask{200, -70}, score, 0, bent);
        check_attention<64, 64>(2, square, window_mask{200, -70}, score, 0, bent);
        check_attention<64, 64, three>(1, {.queries = 130, .keys = 300}, full_mask{}, score, 0, bent);
        check_attention<64, 64>(1, {.queries = 130, .keys = 300}, full_mask{}, score, 0, bent);
    }
}

TEST_CASE("weights relative to one of the largest scores: it stays, or is left far behind") {
    constexpr attention_shape relaxed{.columns = 64, .softmax = attention_softmax::relaxed};
    const attention_case sizes{.heads = 2, .key_heads = 2, .queries = 130, .keys = 330};
    check_attention<64, 64, relaxed>(2, sizes);
    check_attention<64, 64, relaxed>(2, sizes, causal_mask{});
    constexpr attention_shape three{3, 32, 2, 32, 160, true, attention_softmax::relaxed};
    check_attention<64, 64, three>(2, sizes);
    check_attention<64, 64, three>(2, sizes, causal_mask{});
    check_attention<64, 64, three>(2, sizes, window_mask{100, 0});
    for (const float slope : {0.01f, 0.3f}) {
        check_attention<64, 64, relaxed>(
            2, sizes, full_mask{}, backwards{slope}, 0,
            [=](const attention_sequence&, int, int key, double x) { return x - double{slope} * key; });
        check_attention<64, 64, three>(
            2, sizes, causal_mask{}, backwards{slope}, 0,
            [=](const attention_sequence&, int, int key, double x) { return x - double{slope} * key; });
    }
}

namespace {

// All scores of a tile of 64 keys are far below zero or far above, as `above` says of its number; of every other 16 queries the other
// way round.
template <attention_shape Shape, class Mask, class Above>
void check_signs(Above above) {
    const attention_case sizes{.heads = 2, .key_heads = 2, .queries = 200, .keys = 320};
    using kernel = attention_hopper<bf16, 64, 64, Mask, plain_score, Shape>;
    for (const world where : worlds()) {
        CAPTURE(name_of(where));
        attention_tensors<bf16, 64, 64> tensors(where, sizes, 1);
        for (int i = 0; i < sizes.queries * sizes.heads; ++i)
            tensors.q.values[i * 64] = bf16(i / sizes.heads / 16 % 2 == 0 ? 8.0f : -8.0f);
        for (int i = 0; i < sizes.keys * sizes.key_heads; ++i)
            tensors.k.values[i * 64] = bf16(above(i / sizes.key_heads / 64) ? 20.0f : -20.0f);
        run<kernel>(where, {2}, tensors.template send<kernel>(Mask{}, {}, 0.25f, 0), 4);
        const auto worst = tensors.compare(
            0.25f, [](const attention_sequence& s, int query, int key) { return Mask{}.keep(s, query, key); },
            [](const attention_sequence&, int, int, double x) { return x; });
        CHECK(worst.out <= 0.01);
        CHECK(worst.log2_sum <= 0.001);
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

TEST_CASE("scores that are all below zero, or above, for some tiles or for all of them") {
    check_all_signs<attention_shape{.columns = 64}>();
    check_all_signs<attention_shape{3, 32, 2, 32, 160}>();
    const auto every_other = [](int tile) { return tile % 2 == 0; };
    check_signs<attention_shape{.columns = 64, .softmax = attention_softmax::relaxed}, full_mask>(every_other);
    check_signs<attention_shape{3, 32, 2, 32, 160, true, attention_softmax::relaxed}, causal_mask>(every_other);
}

#if !defined(__CUDACC__)
TEST_CASE("attention is silent over 1,000 schedules, and each of its mutants is told") {
    // Three groups, so that some pass by tiles that others see.
    constexpr attention_shape three{.groups = 3, .columns = 32, .producer_registers = 32, .consumer_registers = 160};
    using exact = attention_hopper<bf16, 32, 32, causal_mask, plain_score, three>;
    attention_tensors<bf16, 32, 32> tensors(world::host, {.heads = 4, .key_heads = 1, .queries = 400, .keys = 200}, 1);
    // Keys end before their tile does.
    const auto padded = [](auto arguments, const int& length) {
        arguments.lengths.key_lengths = &length;
        return arguments;
    };
    const int keys = 200, fewer_keys = 100;
    check_synchronisation<exact>("attention", {2}, padded(tensors.send<exact>(), keys));

    // Without a mask, the third group has no queries in the first block of each head, and rests. Each wait matters where groups take
    // no turns; where they do, whoever has had its turn knows that the values are there, and that one wait can be left out.
    constexpr attention_shape no_turns{3, 32, 2, 32, 160, false};
    using resting = attention_hopper<bf16, 32, 32, full_mask, plain_score, no_turns>;
    using in_turns = attention_hopper<bf16, 32, 32, full_mask, plain_score, three>;
    attention_tensors<bf16, 32, 32> ragged(world::host, {.heads = 6, .key_heads = 1, .queries = 300, .keys = 100}, 1);
    check_synchronisation<resting>("attention, resting", {2}, padded(ragged.send<resting>(), fewer_keys));
    const auto ragged_in_turns = padded(ragged.send<in_turns>(), fewer_keys);
    check_silent<in_turns>({2}, ragged_in_turns);
    const host::mutation_score score = host::mutate<in_turns>({2}, ragged_in_turns);
    INFO(score.text());
    CHECK(score.total() > 0);
    CHECK(score.killed() == score.total() - 1);
    const std::string told = score.text();
    CHECK(told.find("SURVIVED: barrier wait by consumer") != std::string::npos);

    constexpr attention_shape two{.columns = 32, .softmax = attention_softmax::relaxed};
    using relaxed = attention_hopper<bf16, 32, 32, full_mask, backwards, two>;
    attention_tensors<bf16, 32, 32> others(world::host, {.heads = 4, .key_heads = 1, .queries = 270, .keys = 100}, 1);
    check_synchronisation<relaxed>("attention, relaxed", {2}, padded(others.send<relaxed>({}, {0.3f}), fewer_keys));

    // Two groups without a mask, which wait for values in the middle of a softmax.
    using plain = attention_hopper<bf16, 32, 32, full_mask, plain_score, attention_shape{.columns = 32}>;
    check_synchronisation<plain>("attention, two groups", {2}, padded(others.send<plain>(), fewer_keys));
}
#endif
