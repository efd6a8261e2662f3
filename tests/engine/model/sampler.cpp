// The sampler: kernel arguments of a batch, and independence of tokens from the batch.
#include "engine/model/sampler.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace imbrex;
using namespace imbrex::engine;

namespace {

constexpr int vocabulary = 300;

batch_entry entry_of(std::vector<int> tokens, int num_prompt_tokens, sampling_params sampling, bool samples = true) {
    sequence one;
    one.tokens = std::move(tokens);
    one.num_prompt_tokens = num_prompt_tokens;
    one.sampling = std::move(sampling);
    const int length = one.length();
    return {
        .sequence = std::make_shared<const sequence>(std::move(one)), .first = 0, .count = length, .samples = samples};
}

sampling_params options_of(auto change) {
    sampling_params options;
    change(options);
    return options;
}

std::vector<float> random_logits(int rows, std::uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> number(0, 3);
    std::vector<float> logits(static_cast<std::size_t>(rows) * vocabulary);
    for (float& one : logits) one = number(generator);
    return logits;
}

// The logit adjustments of a token, as text.
std::string change_of(const sampling_arrays& arrays, int row, int token) {
    for (int i = arrays.adjustment_offsets.at(row); i < arrays.adjustment_offsets.at(row + 1); ++i) {
        const logit_adjustment& one = arrays.adjustments.at(i);
        if (one.token == token) return str_cat(one.generated, one.in_prompt != 0 ? " in prompt " : " ", one.bias);
    }
    return "nothing";
}

}  // namespace

TEST_CASE("A draft token is seen by the positions behind it") {
    batch work;
    work.entries.push_back(entry_of({5, 9, 7}, 2, options_of([](auto& it) {
                                        it.frequency_penalty = 1;
                                        it.bias = {{20, -1.0f}};
                                        it.seed = 4;
                                    })));
    work.entries.back().add_draft({7, 20});
    work.entries.push_back(entry_of({1}, 1, options_of([](auto& it) { it.logprobs = 2; })));
    const sampling_arrays arrays = sampling_arrays_of(work, vocabulary);
    REQUIRE(arrays.options.size() == 4);
    for (int row = 0; row < 3; ++row) {
        CHECK(arrays.options[static_cast<std::size_t>(row)].position == 3 + row);
        CHECK(arrays.options[static_cast<std::size_t>(row)].seed == 4);
        CHECK(change_of(arrays, row, 5) == "0 in prompt 0");
    }
    CHECK(arrays.options[3].position == 1);
    CHECK(change_of(arrays, 0, 7) == "1 0");
    CHECK(change_of(arrays, 1, 7) == "2 0");
    CHECK(change_of(arrays, 1, 20) == "0 -1");
    CHECK(change_of(arrays, 2, 20) == "1 -1");
    CHECK(change_of(arrays, 3, 7) == "nothing");

    // The tokens, log-probabilities included, are those of the sequence that has the draft tokens.
    const std::vector<float> logits = random_logits(4, 1);
    const auto tokens = sampler(world::host, vocabulary, 8).sample(work, logits.data());
    batch longer;
    longer.entries.push_back(work.entries[0]);
    longer.entries[0] = entry_of({5, 9, 7, 7, 20}, 2, work.entries[0].sequence->sampling);
    const auto alone = sampler(world::host, vocabulary, 8).sample(longer, logits.data() + 2 * vocabulary);
    CHECK(tokens.at(2).token == alone.at(0).token);
    CHECK(tokens.at(2).top_logprobs.empty());
    CHECK(tokens.at(3).top_logprobs.size() == 2);
}

namespace {

// Allows one token: the one behind the last token, and 10 first. The text may end behind 12 and is free behind 14.
struct counting final : constraint_state {
    int last = 9;

    std::unique_ptr<constraint_state> clone() const override { return std::make_unique<counting>(*this); }
    void push(int token) override { last = token; }
    bool is_free() const override { return last == 14; }
    void allowed_tokens(std::span<std::uint32_t> mask) const override {
        std::ranges::fill(mask, 0u);
        mask[static_cast<std::size_t>((last + 1) / 32)] |= 1u << ((last + 1) % 32);
    }
    bool may_end() const override { return last == 12; }
    bool must_end() const override { return false; }
};

}  // namespace

TEST_CASE("A constraint is followed through the draft tokens, and stays where it is") {
    sequence one;
    one.tokens = {1, 2, 10};
    one.num_prompt_tokens = 2;
    one.eos_tokens = {99};
    one.sampling.temperature = 0;
    one.constraint = constraint_progress(std::make_unique<counting>());
    one.constraint->push(10);
    batch work;
    work.entries.push_back(
        {.sequence = std::make_shared<const sequence>(one), .first = 2, .count = 1, .samples = true});
    work.entries.back().add_draft({11, 12, 13, 14, 99});
    std::vector<float> logits(static_cast<std::size_t>(6) * vocabulary, 0);
    for (std::size_t row = 0; row < 6; ++row) {
        logits[row * vocabulary + 99] = 1;   // the end, where it is allowed
        logits[row * vocabulary + 200] = 2;  // only where all tokens are
    }
    const auto tokens = sampler(world::host, vocabulary, 8).sample(work, logits.data());
    std::vector<int> found;
    for (const sampled_token& each : tokens) found.push_back(each.token);
    CHECK(found == std::vector{11, 12, 99, 14, 200, 200});
    CHECK(static_cast<const counting&>(*work.entries[0].sequence->constraint.operator->()).last == 10);
    const sampling_arrays arrays = sampling_arrays_of(work, vocabulary);
    CHECK(arrays.token_mask_rows == std::vector{0, 1, 2, 3, -1, -1});
}

TEST_CASE("Counts prompt and generated tokens separately") {
    batch work;
    work.entries.push_back(entry_of({5, 9, 5, 5, 7, 7, 9}, 3, options_of([](auto& it) {
                                        it.presence_penalty = 1;
                                        it.bias = {{7, 2.0f}, {20, -1.0f}, {7, 0.5f}};
                                    })));
    work.entries.push_back(entry_of({5, 9}, 2, options_of([](auto& it) { it.repetition_penalty = 2; }), false));
    work.entries.push_back(entry_of({5, 9}, 1, {}));
    work.entries.push_back(entry_of({5, 9}, 1, options_of([](auto& it) { it.bias = {{1, 1.0f}}; })));
    const sampling_arrays arrays = sampling_arrays_of(work, vocabulary);
    CHECK(arrays.options.size() == 3);
    CHECK(arrays.adjustment_offsets == std::vector<int>{0, 4, 4, 5});
    CHECK(change_of(arrays, 0, 5) == "1 in prompt 0");
    CHECK(change_of(arrays, 0, 9) == "1 in prompt 0");
    CHECK(change_of(arrays, 0, 7) == "2 2.5");
    CHECK(change_of(arrays, 0, 20) == "0 -1");
    CHECK(change_of(arrays, 2, 1) == "0 1");
    CHECK(arrays.options[0].position == 7);
    CHECK(arrays.options[1].position == 2);
}

TEST_CASE("Passes parameters to the kernel unchanged") {
    batch work;
    work.entries.push_back(entry_of({1, 2, 3}, 3, options_of([](auto& it) {
                                        it.temperature = 0.5f;
                                        it.top_k = 7;
                                        it.top_p = 0.25f;
                                        it.min_p = 0.125f;
                                        it.repetition_penalty = 1.5f;
                                        it.presence_penalty = 2;
                                        it.frequency_penalty = 3;
                                        it.seed = 1ull << 40;
                                        it.logprobs = 4;
                                    })));
    const sampling_arrays arrays = sampling_arrays_of(work, vocabulary);
    const sample_options& one = arrays.options.at(0);
    CHECK(one.temperature == 0.5f);
    CHECK(one.top_k == 7);
    CHECK(one.top_p == 0.25f);
    CHECK(one.min_p == 0.125f);
    CHECK(one.repetition_penalty == 1.5f);
    CHECK(one.presence_penalty == 2);
    CHECK(one.frequency_penalty == 3);
    CHECK(one.seed == 1ull << 40);
    CHECK(one.position == 3);
    CHECK(arrays.num_top_logprobs == 4);
}

TEST_CASE("Greedy sampling with bias and penalties") {
    std::vector<float> logits(5 * vocabulary, 0.0f);
    for (int row = 0; row < 5; ++row) {
        logits[row * vocabulary + 10] = 4;
        logits[row * vocabulary + 11] = 3;
        logits[row * vocabulary + 12] = 2;
    }
    const auto greedy = [](auto change) {
        return options_of([&](auto& it) {
            it.temperature = 0;
            change(it);
        });
    };
    batch work;
    work.entries.push_back(entry_of({10, 10}, 2, greedy([](auto&) {})));
    // The presence penalty counts generated tokens only.
    work.entries.push_back(entry_of({10, 11}, 1, greedy([](auto& it) { it.presence_penalty = 2; })));
    // 4 / 1.5 exceeds 3 / 1.5 and 2; if only token 10 is present, 4 / 1.5 is below 3.
    work.entries.push_back(entry_of({10, 11}, 2, greedy([](auto& it) { it.repetition_penalty = 1.5f; })));
    work.entries.push_back(entry_of({10, 11, 10, 10}, 1, greedy([](auto& it) { it.frequency_penalty = 0.75f; })));
    work.entries.push_back(entry_of({1}, 1, greedy([](auto& it) {
                                        it.bias = {{10, -std::numeric_limits<float>::infinity()}, {12, 1.5f}};
                                    })));
    sampler next(world::host, vocabulary, 8);
    const std::vector<sampled_token> tokens = next.sample(work, logits.data());
    REQUIRE(tokens.size() == 5);
    CHECK(tokens[0].token == 10);
    CHECK(tokens[1].token == 10);
    CHECK(tokens[2].token == 10);
    CHECK(tokens[3].token == 10);
    CHECK(tokens[4].token == 12);

    work.entries[1] = entry_of({11, 10}, 1, greedy([](auto& it) { it.presence_penalty = 2; }));
    work.entries[2] = entry_of({10}, 1, greedy([](auto& it) { it.repetition_penalty = 1.5f; }));
    work.entries[3] = entry_of({11, 10, 10}, 1, greedy([](auto& it) { it.frequency_penalty = 0.75f; }));
    const std::vector<sampled_token> others = next.sample(work, logits.data());
    CHECK(others[1].token == 11);
    CHECK(others[2].token == 11);
    CHECK(others[3].token == 11);
}

TEST_CASE("Returns raw log-probabilities, as many as each sequence requests") {
    const std::vector<float> logits = random_logits(3, 7);
    batch work;
    work.entries.push_back(entry_of({1}, 1, options_of([](auto& it) {
                                        it.logprobs = 2;
                                        it.temperature = 0.1f;
                                        it.bias = {{40, 100.0f}};
                                    })));
    work.entries.push_back(entry_of({1}, 1, {}));
    work.entries.push_back(entry_of({1}, 1, options_of([](auto& it) { it.logprobs = 20; })));
    sampler next(world::host, vocabulary, 3);
    const std::vector<sampled_token> tokens = next.sample(work, logits.data());
    CHECK(tokens[0].token == 40);
    CHECK(tokens[0].top_logprobs.size() == 2);
    CHECK(tokens[1].top_logprobs.empty());
    CHECK(tokens[1].logprob == 0);
    CHECK(tokens[2].top_logprobs.size() == 20);
    for (const int row : {0, 2}) {
        const float* const own = logits.data() + row * vocabulary;
        double sum = 0;
        for (int i = 0; i < vocabulary; ++i) sum += std::exp(double{own[i]});
        const auto wanted = [&](int token) { return own[token] - std::log(sum); };
        CHECK(tokens[row].logprob == doctest::Approx(wanted(tokens[row].token)).epsilon(1e-5));
        for (std::size_t i = 0; i < tokens[row].top_logprobs.size(); ++i) {
            const token_logprob& one = tokens[row].top_logprobs[i];
            CHECK(one.value == doctest::Approx(wanted(one.token)).epsilon(1e-5));
            if (i > 0) CHECK(one.value <= tokens[row].top_logprobs[i - 1].value);
        }
    }
}

TEST_CASE("Handles a vocabulary smaller than the requested log-probabilities") {
    const std::vector<float> logits{1, 3, 2};
    batch work;
    work.entries.push_back(entry_of({0}, 1, options_of([](auto& it) { it.logprobs = 5; })));
    sampler next(world::host, 3, 1);
    const std::vector<sampled_token> tokens = next.sample(work, logits.data());
    REQUIRE(tokens[0].top_logprobs.size() == 3);
    CHECK(tokens[0].top_logprobs[0].token == 1);
    CHECK(tokens[0].top_logprobs[2].token == 0);
}

TEST_CASE("Tokens are independent of the batch") {
    constexpr int rows = 9;
    const std::vector<float> logits = random_logits(rows, 3);
    batch together;
    for (int i = 0; i < rows; ++i) {
        std::vector<int> tokens(static_cast<std::size_t>(i + 1), i);
        together.entries.push_back(entry_of(tokens, 1, options_of([&](auto& it) {
                                                it.seed = static_cast<std::uint64_t>(100 + i);
                                                it.temperature = 1.5f;
                                                if (i % 2 == 0) it.top_p = 0.9f;
                                                if (i % 3 == 0) it.frequency_penalty = 0.5f;
                                                if (i % 4 == 0) it.logprobs = 3;
                                            })));
        together.entries.push_back(entry_of({1, 2}, 2, {}, false));
    }
    sampler next(world::host, vocabulary, rows);
    const std::vector<sampled_token> all = next.sample(together, logits.data());
    REQUIRE(all.size() == rows);
    for (int i = 0; i < rows; ++i) {
        batch alone;
        alone.entries.push_back(together.entries[static_cast<std::size_t>(2 * i)]);
        CHECK(next.sample(alone, logits.data() + i * vocabulary).at(0).token == all[static_cast<std::size_t>(i)].token);
    }
}

TEST_CASE("Seed and position determine the draw") {
    const std::vector<float> logits(vocabulary, 0.0f);
    sampler next(world::host, vocabulary, 1);
    const auto drawn = [&](std::uint64_t seed, int length) {
        batch work;
        work.entries.push_back(entry_of(std::vector<int>(static_cast<std::size_t>(length), 0), 1,
                                        options_of([&](auto& it) { it.seed = seed; })));
        return next.sample(work, logits.data()).at(0).token;
    };
    const int first = drawn(1, 1);
    CHECK(drawn(1, 1) == first);
    int others = 0;
    for (int i = 2; i < 10; ++i) others += (drawn(1, i) != first ? 1 : 0) + (drawn(i, 1) != first ? 1 : 0);
    CHECK(others >= 14);
}

TEST_CASE("Rejects batches above the sampler's limits") {
    const std::vector<float> logits = random_logits(2, 1);
    sampler next(world::host, vocabulary, 1);
    const auto error_message_of = [&](const batch& work) -> std::string {
        try {
            next.sample(work, logits.data());
        } catch (const imbrex::error& refused) {
            return refused.what();
        }
        return "no error";
    };
    batch work;
    CHECK(error_message_of(work) == "no error");
    CHECK(next.sample(work, nullptr).empty());
    work.entries.push_back(entry_of({1}, 1, options_of([](auto& it) { it.bias = {{vocabulary, 1.0f}}; })));
    CHECK(error_message_of(work) == "sequence 0: it names token 300; the vocabulary has 300 tokens");
    work.entries[0] = entry_of({1}, 1, options_of([](auto& it) { it.top_p = 2; }));
    CHECK(error_message_of(work) == "top_p: 2; it must be more than 0 and at most 1");
    work.entries[0] = entry_of({1}, 1, {});
    work.entries.push_back(work.entries[0]);
    CHECK(error_message_of(work) == "batch: 2 of its positions are sampled; this sampler was made for 1");
}
