// The model on a GPU against the float64 reference: every family and RoPE variant, head_dims with tensor-core and with
// SIMT attention. Repeated decode shapes replay a CUDA graph, so lengths, blocks and the other sequences change in
// between.
#include "engine/model/cuda_runner.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/model/model_variants.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/model/sampler.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"

namespace imbrex::engine::test {

namespace {

model_files model_of(const variant& which, int head_dim) {
    model_config config = config_of(which, head_dim);
    config.layers = 2;
    return random_model(config, weight_type::bf16);
}

// Sequences of a batch with their float64 reference logits.
class side_by_side {
  public:
    side_by_side(const model_files& files, runner& with) : files_(files), with_(with) {}

    void add(int length, std::vector<int> blocks) {
        const auto seed = static_cast<unsigned>(sequences_.size());
        sequences_.push_back(sequence_in(random_tokens(length, files_.config.vocab_size, seed), std::move(blocks)));
        expected_.push_back(reference_logits(files_.config, files_.weights, sequences_.back()->tokens));
        computed_.push_back(0);
    }
    void move(std::size_t number, std::vector<int> blocks) {
        sequences_[number]->block_table.groups.assign(most_cache_groups, blocks);
    }

    // Computes the next tokens of some sequences and returns the largest error of their logits.
    double distance_of(const std::map<std::size_t, int>& counts, std::vector<block_copy> copies = {}) {
        return std::ranges::max(distances_of(counts, std::move(copies)));
    }
    // The error of each sequence.
    std::vector<double> distances_of(const std::map<std::size_t, int>& counts, std::vector<block_copy> copies = {}) {
        batch work;
        work.copies = std::move(copies);
        rows wanted;
        for (const auto& [number, count] : counts) {
            work.entries.push_back({sequences_[number], computed_[number], count, true});
            computed_[number] += count;
            wanted.push_back(expected_[number][static_cast<std::size_t>(computed_[number]) - 1]);
        }
        return distances(run_logits(with_, work, files_.config.vocab_size), wanted);
    }

  private:
    const model_files& files_;
    runner& with_;
    std::vector<std::shared_ptr<sequence>> sequences_;
    std::vector<rows> expected_;
    std::vector<int> computed_;
};

// Checks the errors of rows of logits. A router that chooses some of the experts is not continuous: rounding changes the
// choice where two experts are nearly equal, and with it the row. Then three of four rows must be right.
class row_check {
  public:
    explicit row_check(const model_config& config) : chooses_(config.experts.per_token < config.experts.count) {}

    void add(const std::vector<double>& errors) {
        if (!chooses_) CHECK(std::ranges::max(errors) < cuda_rounding);
        all_.insert(all_.end(), errors.begin(), errors.end());
    }
    void finish() {
        REQUIRE(!all_.empty());
        std::ranges::sort(all_);
        CHECK(all_[(all_.size() - 1) * 3 / 4] < cuda_rounding);
    }

  private:
    bool chooses_;
    std::vector<double> all_;
};

}  // namespace

TEST_CASE("On a GPU: logits of every family match the reference, in one step, in chunks and token by token") {
    if (!cuda_is_available()) return;
    for (const variant& which : all_variants()) {
        for (const int head_dim : {16, 24, 64, 128}) {
            CAPTURE(std::string(which.name));
            CAPTURE(head_dim);
            const model_files files = model_of(which, head_dim);
            const int vocabulary = files.config.vocab_size;
            const auto with = runner_on_cuda(files);
            // Shuffled blocks with stale content of other texts, different for each chunking.
            std::vector<int> blocks{9, 3, 17, 0};
            unsigned seed = 7;
            row_check check(files.config);
            for (const std::vector<int>& chunks :
                 {std::vector<int>{50}, {17, 1, 1, 1, 12, 1, 1, 1, 14, 1}, std::vector<int>(50, 1)}) {
                CAPTURE(chunks.size());
                const std::vector<int> tokens = random_tokens(50, vocabulary, seed++);
                const rows expected = reference_logits(files.config, files.weights, tokens);
                const rows logits = logits_of_chunks(*with, sequence_in(tokens, blocks), chunks, vocabulary);
                check.add(distances(logits, at_ends(expected, chunks)));
                std::ranges::reverse(blocks);
            }
            check.finish();
        }
    }
}

TEST_CASE("On a GPU: chunked prefill of a long prompt, then decode") {
    if (!cuda_is_available()) return;
    for (const int head_dim : {24, 64, 128}) {
        for (const int kv_heads : {1, 8}) {
            CAPTURE(head_dim);
            CAPTURE(kv_heads);
            model_config config = small_config(model_family::llama);
            config.layers = 1;
            config.head_dim = head_dim;
            config.heads = 8;
            config.kv_heads = kv_heads;
            config.context = 1024;
            const model_files files = random_model(config, weight_type::bf16);
            const std::vector<int> tokens = random_tokens(530, config.vocab_size, 3);
            const rows expected = reference_logits(config, files.weights, tokens);
            const auto with =
                runner_on_cuda(files, {.num_kv_blocks = 40, .max_num_batched_tokens = 256, .max_num_seqs = 2});
            std::vector<int> blocks = blocks_from(3, 34), chunks{256, 1, 200, 51};
            std::ranges::reverse(blocks);
            chunks.resize(chunks.size() + 22, 1);  // past token 512: max_blocks_per_seq changes
            const rows logits = logits_of_chunks(*with, sequence_in(tokens, blocks), chunks, config.vocab_size);
            CHECK(largest_distance(logits, at_ends(expected, chunks)) < cuda_rounding);
        }
    }
}

TEST_CASE("On a GPU: sequences join and leave the decode batch") {
    if (!cuda_is_available()) return;
    for (const variant& which : all_variants()) {
        for (const int head_dim : {16, 64, 128}) {
            CAPTURE(std::string(which.name));
            CAPTURE(head_dim);
            const model_files files = model_of(which, head_dim);
            const auto with = runner_on_cuda(files);
            side_by_side all(files, *with);
            all.add(48, {23, 1, 12});
            all.add(48, {4, 20, 7});
            all.add(48, {2, 21, 9});
            row_check check(files.config);
            const auto step = [&](const std::map<std::size_t, int>& counts) { check.add(all.distances_of(counts)); };
            step({{0, 29}, {1, 15}, {2, 1}});
            // The first grows from two blocks to three, the second from one to two.
            for (int i = 0; i < 5; ++i) step({{0, 1}, {1, 1}, {2, 1}});
            // Replays of the same CUDA graph with other sequences must read the current block tables.
            for (int i = 0; i < 3; ++i) step({{0, 1}, {2, 1}});
            for (int i = 0; i < 2; ++i) step({{0, 1}, {1, 1}});
            for (int i = 0; i < 2; ++i) step({{1, 1}, {2, 1}});
            step({{0, 1}, {1, 2}, {2, 12}});
            for (int i = 0; i < 2; ++i) step({{0, 1}, {1, 1}, {2, 1}});
            for (const std::size_t alone : {1, 2, 1, 2, 0}) step({{alone, 1}});
            check.finish();
        }
    }
}

TEST_CASE("On a GPU: batches above and below the CUDA graph limit") {
    if (!cuda_is_available()) return;
    for (const int head_dim : {24, 64}) {
        CAPTURE(head_dim);
        const model_files files = model_of(variants().front(), head_dim);
        const auto with =
            runner_on_cuda(files, {.num_kv_blocks = 150, .max_num_batched_tokens = 200, .max_num_seqs = 72});
        side_by_side all(files, *with);
        std::map<std::size_t, int> prompts, everyone, some;
        for (int i = 0; i < 72; ++i) {
            const auto number = static_cast<std::size_t>(i);
            all.add(20, {2 * i, 2 * i + 1});
            prompts[number] = 1 + i % 4;
            everyone[number] = 1;
            if (i % 8 != 0) some[number] = 1;
        }
        CHECK(all.distance_of(prompts) < cuda_rounding);
        for (int i = 0; i < 3; ++i) {
            CHECK(all.distance_of(everyone) < cuda_rounding);
            CHECK(all.distance_of(some) < cuda_rounding);
        }
    }
}

TEST_CASE("On a GPU: block copies precede writes, and a batch need not sample") {
    if (!cuda_is_available()) return;
    for (const int head_dim : {16, 64}) {
        CAPTURE(head_dim);
        const model_files files = model_of(variants().front(), head_dim);
        const auto with = runner_on_cuda(files);
        side_by_side all(files, *with);
        all.add(40, {5, 2, 8});
        all.add(40, {5, 2, 9});
        CHECK(all.distance_of({{0, 20}}) < cuda_rounding);
        all.move(0, {11, 14, 8});
        CHECK(all.distance_of({{0, 1}, {1, 20}}, {{5, 11}, {2, 14}}) < cuda_rounding);
        for (int i = 0; i < 3; ++i) {
            all.move(0, {12 + i, 15 + i, 8});
            CHECK(all.distance_of({{0, 1}, {1, 1}}, {{11 + i, 12 + i}, {14 + i, 15 + i}}) < cuda_rounding);
        }

        const auto sequence = sequence_in(random_tokens(20, files.config.vocab_size, 5), {3, 1});
        const rows expected = reference_logits(files.config, files.weights, sequence->tokens);
        batch work;
        work.entries.push_back({sequence, 0, 19, false});
        CHECK(run_logits(*with, work, files.config.vocab_size).empty());
        work.entries.front() = {sequence, 19, 1, true};
        CHECK(largest_distance(run_logits(*with, work, files.config.vocab_size), {expected.back()}) < cuda_rounding);
    }
}

TEST_CASE("On a GPU: as close to transformers as transformers in bf16") {
    if (!cuda_is_available()) return;
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        const transformers_model model(folder);
        const int vocabulary = model.files.config.vocab_size, count = static_cast<int>(model.tokens.size());
        const auto sequence = sequence_in(model.tokens, blocks_from(0, (count + 15) / 16));
        const auto with = runner_on_cuda(model.files);
        for (const std::vector<int>& chunks : {std::vector<int>(model.tokens.size(), 1), {count}}) {
            const rows logits = logits_of_chunks(*with, sequence, chunks, vocabulary);
            CHECK(largest_distance(logits, at_ends(model.logits, chunks)) < 2 * model.bf16_error);
        }
    }
}

TEST_CASE("On a GPU: samples the same tokens as on a CPU from equal logits") {
    if (!cuda_is_available()) return;
    const model_files files = model_of(variants().front(), 64);
    const int vocabulary = files.config.vocab_size;
    const std::vector<sampling_params> asked{
        {.temperature = 0, .bias = {}, .stop = {}},
        {.temperature = 1, .bias = {}, .seed = 5, .stop = {}},
        {.temperature = 1.5f, .top_k = 40, .bias = {}, .seed = 6, .stop = {}, .logprobs = 3},
        {.temperature = 0.7f, .top_p = 0.9f, .bias = {}, .seed = 7, .stop = {}},
        {.temperature = 1, .min_p = 0.1f, .bias = {{3, 5.0f}, {4, -5.0f}}, .seed = 8, .stop = {}, .logprobs = 20},
        {.temperature = 1, .top_k = 100, .top_p = 0.8f, .repetition_penalty = 1.3f, .bias = {}, .seed = 9, .stop = {}},
        {.presence_penalty = 0.5f, .frequency_penalty = 0.25f, .bias = {}, .seed = 1ull << 40, .stop = {}},
    };
    const auto with = runner_on_cuda(files);
    sampler on_cpu(world::host, vocabulary, 8);
    std::vector<std::shared_ptr<sequence>> sequences;
    batch work;
    for (const sampling_params& options : asked) {
        const int number = static_cast<int>(sequences.size());
        sequences.push_back(sequence_in(random_tokens(3 + number, vocabulary, 1), {2 * number, 2 * number + 1}));
        sequences.back()->sampling = options;
        work.entries.push_back({sequences.back(), 0, 3 + number, true});
    }
    int different = 0;  // from greedy: by sampling or by a penalty
    for (int step = 0; step < 20; ++step) {
        CAPTURE(step);
        with->run(work);
        const std::vector<sampled_token>& sampled = with->last_sampled();
        const std::vector<float> logits = with->last_logits();
        const std::vector<sampled_token> expected = on_cpu.sample(work, logits.data());
        REQUIRE(sampled.size() == expected.size());
        for (std::size_t i = 0; i < sampled.size(); ++i) {
            CAPTURE(i);
            CHECK(sampled[i].token == expected[i].token);
            CHECK(sampled[i].logprob == doctest::Approx(expected[i].logprob).epsilon(1e-4));
            REQUIRE(sampled[i].top_logprobs.size() == expected[i].top_logprobs.size());
            for (std::size_t k = 0; k < sampled[i].top_logprobs.size(); ++k) {
                CHECK(sampled[i].top_logprobs[k].token == expected[i].top_logprobs[k].token);
                CHECK(sampled[i].top_logprobs[k].value ==
                      doctest::Approx(expected[i].top_logprobs[k].value).epsilon(1e-4));
            }
            const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i) * vocabulary;
            different += sampled[i].token != std::max_element(row, row + vocabulary) - row;
            sequences[i]->tokens.push_back(sampled[i].token);
            work.entries[i] = {sequences[i], sequences[i]->length() - 1, 1, true};
        }
    }
    CHECK(different > 40);
}

}  // namespace imbrex::engine::test
