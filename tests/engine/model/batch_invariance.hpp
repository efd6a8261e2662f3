// Batch invariance tests, bit by bit: logits of a sequence in random batches against those of the sequence alone, and
// complete texts at temperature 1 served from a small KV cache with shared prefixes and preemptions against texts of an
// engine that serves one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/model/kv_cache_layout.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/runner.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/serving/batch.hpp"
#include "engine/serving/engine.hpp"
#include "random_below.hpp"

namespace imbrex::engine::test {

// Logits of the entries that sample, one row each.
inline std::vector<std::vector<float>> exact_logits(runner& with, const batch& work, int vocabulary) {
    with.run(work);
    const std::vector<float> all = with.last_logits();
    REQUIRE(static_cast<int>(all.size()) == work.samples() * vocabulary);
    std::vector<std::vector<float>> result;
    for (auto at = all.begin(); at != all.end(); at += vocabulary) result.emplace_back(at, at + vocabulary);
    return result;
}

// Sequences of random tokens. The first `prompt` tokens are computed in chunks, the others one by one like generated
// tokens.
struct batch_sequences {
    static constexpr int count = 6, prompt = 37, length = 70, blocks_each = 5;

    std::vector<std::shared_ptr<sequence>> sequences{};

    explicit batch_sequences(int vocabulary) {
        for (int i = 0; i < count; ++i) {
            sequences.push_back(sequence_in(random_tokens(length, vocabulary, static_cast<unsigned>(i)),
                                            blocks_from(i * blocks_each, blocks_each)));
            sequences.back()->num_prompt_tokens = prompt;
        }
    }
};

inline constexpr runner_options runner_of_bystanders{
    .num_kv_blocks = batch_sequences::count * batch_sequences::blocks_each,
    .max_num_batched_tokens = 256,
    .max_num_seqs = batch_sequences::count};

// Whether a batch may mix prompt and generated tokens.
enum class batches { mixed, of_one_kind };

inline void check_logits_batch_invariant(runner& with, int vocabulary, batches allowed = batches::mixed) {
    const batch_sequences all(vocabulary);
    // Reference: the prompt in one step, then token by token. One row of logits per position from the last prompt token
    // on.
    std::vector<std::vector<std::vector<float>>> alone;
    for (const auto& one : all.sequences) {
        auto& rows = alone.emplace_back(batch_sequences::length);
        const auto run = [&](int first, int count) {
            batch work;
            work.entries.push_back({one, first, count, true});
            rows[static_cast<std::size_t>(first + count) - 1] = exact_logits(with, work, vocabulary).front();
        };
        run(0, batch_sequences::prompt);
        for (int i = batch_sequences::prompt; i < batch_sequences::length; ++i) run(i, 1);
    }
    for (unsigned seed = 0; seed < 3; ++seed) {
        CAPTURE(seed);
        std::mt19937 random(seed);
        const imbrex_test::random_below below(random);
        std::vector<int> done(batch_sequences::count);
        int different = 0, compared = 0;
        for (int turn = 0; *std::ranges::min_element(done) < batch_sequences::length; ++turn) {
            batch work;
            std::vector<std::pair<std::size_t, std::size_t>> sampled;
            for (std::size_t i = 0; i < done.size(); ++i) {
                if (done[i] == batch_sequences::length || below(3) == 0) continue;
                const int left = batch_sequences::prompt - done[i];
                if (allowed == batches::of_one_kind && (turn % 2 == 0) != (left > 0)) continue;
                // Recomputed generated tokens share a step.
                const int more = std::max(std::min(below(20) - 15, batch_sequences::length - done[i] - 1), 0);
                const int count = left <= 0 ? 1 + more : 1 + below(left);
                const bool samples = count >= left;
                work.entries.push_back({all.sequences[i], done[i], count, samples});
                done[i] += count;
                if (samples) sampled.emplace_back(i, static_cast<std::size_t>(done[i]) - 1);
            }
            if (work.entries.empty()) continue;
            const auto rows = exact_logits(with, work, vocabulary);
            for (std::size_t i = 0; i < rows.size(); ++i) {
                different += rows[i] != alone[sampled[i].first][sampled[i].second];
                ++compared;
            }
        }
        CHECK(compared > batch_sequences::count * (batch_sequences::length - batch_sequences::prompt) / 2);
        CHECK(different == 0);
    }
}

struct served_figures {
    std::int64_t preemptions = 0;
    double prefix_cache_hit_rate = 0;
};

// Drafts of texts that are known, of which some tokens are wrong.
struct known_texts final : draft_proposer {
    const std::map<int, std::vector<int>>& texts;
    const std::map<sequence_id, int>& numbers;
    int vocabulary;
    std::mt19937 random{1};

    known_texts(const std::map<int, std::vector<int>>& all, const std::map<sequence_id, int>& of, int tokens)
        : texts(all), numbers(of), vocabulary(tokens) {}
    void propose(batch& next) override {
        for (batch_entry& entry : next.entries) {
            const std::vector<int>& text = texts.at(numbers.at(entry.sequence->id));
            const auto done = static_cast<std::size_t>(entry.sequence->generated());
            std::vector<int> draft;
            for (std::size_t i = 0; i < static_cast<std::size_t>(entry.max_draft); ++i)
                draft.push_back(random() % 4 == 0 ? static_cast<int>(random() % static_cast<unsigned>(vocabulary))
                                                  : text.at(done + i));
            entry.add_draft(std::move(draft));
        }
    }
};

// The texts of `count` random requests, with drafts if they are known and the options allow them.
inline std::map<int, std::vector<int>> served_texts(runner& with, block_manager blocks, int vocabulary, int requests,
                                                    unsigned seed, scheduler_options options,
                                                    served_figures* figures = nullptr,
                                                    const std::map<int, std::vector<int>>* known = nullptr) {
    std::mt19937 random(seed);
    const imbrex_test::random_below below(random);
    engine<runner> serving(with, std::move(blocks), options);
    const std::vector<int> stem = random_tokens(50, vocabulary, seed);
    std::map<sequence_id, int> numbers;
    std::map<int, std::vector<int>> texts;
    if (known != nullptr) {
        serving.speculate(
            speculation(std::make_unique<known_texts>(*known, numbers, vocabulary), speculation::depth::fixed));
    }
    const auto add = [&](int number) {
        request wanted;
        wanted.prompt.assign(stem.begin(), stem.begin() + below(50));
        for (const int token : random_tokens(1 + below(5), vocabulary, random())) wanted.prompt.push_back(token);
        wanted.max_new_tokens = 1 + below(50);
        wanted.priority = below(3);
        wanted.sampling.seed = random();
        numbers[serving.add(wanted).front()] = number;
    };
    // Later requests may have a higher priority than running ones.
    for (int step = 0, added = 0; added < requests || !serving.idle(); ++step) {
        if (added < requests && step % 3 == 0) add(added++);
        for (const event& one : serving.step()) texts[numbers.at(one.id)].push_back(one.sampled.token);
    }
    if (known != nullptr) {
        CHECK(serving.summary().accepted_tokens > requests);
        CHECK(serving.summary().drafted_tokens > serving.summary().accepted_tokens);
    }
    if (figures != nullptr) {
        figures->preemptions += serving.summary().preemptions;
        figures->prefix_cache_hit_rate =
            std::max(figures->prefix_cache_hit_rate, serving.summary().prefix_cache_hit_rate);
    }
    return texts;
}

inline constexpr runner_options small_cache{
    .num_kv_blocks = 9, .max_num_batched_tokens = 48, .max_num_seqs = 8, .max_num_draft_tokens = 24};

inline void check_texts_batch_invariant(runner& with, const model_config& config, served_figures& figures,
                                        unsigned seed, batches allowed = batches::mixed) {
    const auto texts = [&](int budget, int sequences, const std::map<int, std::vector<int>>* known = nullptr) {
        return served_texts(with, block_manager(kv_cache_groups(config, small_cache)), config.vocab_size, 16, seed,
                            {.context = 150,
                             .max_num_batched_tokens = budget,
                             .max_num_seqs = sequences,
                             .separate_prefill = allowed == batches::of_one_kind,
                             .max_draft_tokens = known == nullptr ? 0 : 4,
                             .max_num_draft_tokens = small_cache.max_num_draft_tokens},
                            sequences > 1 ? &figures : nullptr, known);
    };
    const auto alone = texts(48, 1), together = texts(48, 8), hurried = texts(9, 7);
    CHECK(together == alone);
    CHECK(hurried == alone);
    CHECK(texts(48, 4, &alone) == alone);
}

}  // namespace imbrex::engine::test
