// Batch invariance of the runner on a GPU, bit by bit: prompt chunks, other decodes, preemptions, all weight formats.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/model/batch_invariance.hpp"
#include "engine/model/on_cuda.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/support.hpp"
#include "random_below.hpp"

namespace imbrex::engine::test {

namespace {

std::unique_ptr<runner> batch_invariant_on_cuda(const model_files& files, runner_options options,
                                                weight_format format = weight_format::as_in_file) {
    options.weights = format;
    options.batch_invariant = true;
    return runner_on_cuda(files, options);
}

model_config device_config(model_family family, int head_dim) {
    model_config config = small_config(family);
    config.layers = 2;
    config.hidden_size = 256;
    config.intermediate_size = 704;
    config.head_dim = head_dim;
    return config;
}

// Long prompts and many decodes: covers all kernels that depend on the number of rows.
struct crowd {
    static constexpr int count = 40, prompt = 1300, decoded = 12, length = prompt + decoded;
    static constexpr int blocks_each = (length + 15) / 16;
    static constexpr runner_options room{
        .num_kv_blocks = count * blocks_each, .max_num_batched_tokens = 2048, .max_num_seqs = count};

    int vocabulary;
    std::vector<std::shared_ptr<sequence>> sequences{};

    explicit crowd(int of_vocabulary) : vocabulary(of_vocabulary) {
        for (int i = 0; i < count; ++i) {
            const int own = i % 4 == 0 ? prompt : 3 + 11 * i;  // tokens of its prompt
            sequences.push_back(sequence_in(random_tokens(own + decoded, vocabulary, static_cast<unsigned>(i)),
                                            blocks_from(i * blocks_each, blocks_each)));
            sequences.back()->num_prompt_tokens = own;
        }
    }

    // Reference: the last prompt token after a single prefill step, then each generated token.
    std::vector<std::vector<float>> alone(runner& with, std::size_t number) const {
        const auto& one = sequences[number];
        std::vector<std::vector<float>> rows;
        for (int first = 0; first < one->length();) {
            const int tokens = first == 0 ? one->num_prompt_tokens : 1;
            batch work;
            work.entries.push_back({one, first, tokens, true});
            rows.push_back(exact_logits(with, work, vocabulary).front());
            first += tokens;
        }
        return rows;
    }

    // Batched: prompt chunks that fill the token budget, then decodes of random subsets.
    std::vector<std::vector<std::vector<float>>> together(runner& with, unsigned seed) const {
        std::mt19937 random(seed);
        const imbrex_test::random_below below(random);
        std::vector<std::vector<std::vector<float>>> rows(sequences.size());
        std::vector<int> done(sequences.size());
        const auto run = [&](const batch& work, const std::vector<std::size_t>& sampled) {
            if (work.entries.empty()) return;
            const auto found = exact_logits(with, work, vocabulary);
            for (std::size_t i = 0; i < found.size(); ++i) rows[sampled[i]].push_back(found[i]);
        };
        for (bool more = true; more;) {
            more = false;
            batch work;
            std::vector<std::size_t> sampled;
            int budget = 1 + below(room.max_num_batched_tokens);
            for (std::size_t i = 0; i < done.size(); ++i) {
                const int left = sequences[i]->num_prompt_tokens - done[i];
                if (left == 0) continue;
                more = true;
                const int count = std::min(below(3) == 0 ? 1 + below(left) : left, budget);
                if (count == 0) continue;
                budget -= count;
                work.entries.push_back({sequences[i], done[i], count, count == left});
                if (count == left) sampled.push_back(i);
                done[i] += count;
            }
            run(work, sampled);
        }
        for (bool more = true; more;) {
            more = false;
            batch work;
            std::vector<std::size_t> sampled;
            const int part = 1 + below(4);
            for (std::size_t i = 0; i < done.size(); ++i) {
                if (done[i] == sequences[i]->length()) continue;
                more = true;
                if (below(part) > 0) continue;
                work.entries.push_back({sequences[i], done[i]++, 1, true});
                sampled.push_back(i);
            }
            run(work, sampled);
        }
        return rows;
    }
};

}  // namespace

TEST_CASE("On a GPU: an invariant runner's logits are independent of the batch") {
    if (!cuda_is_available()) return;
    for (const weight_format format :
         {weight_format::bf16, weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        CAPTURE(std::string(name_of(format)));
        for (const int head_dim : {24, 64, 128}) {
            CAPTURE(head_dim);
            const auto family = static_cast<model_family>((static_cast<int>(format) + head_dim / 64) % 3);
            const model_config config = device_config(family, head_dim);
            const model_files files = random_model(config, weight_type::bf16);
            const auto with = batch_invariant_on_cuda(files, runner_of_bystanders, format);
            check_logits_batch_invariant(*with, config.vocab_size, batches::of_one_kind);
        }
    }
}

TEST_CASE("On a GPU: an invariant runner's logits are independent of long prompts and many decodes") {
    if (!cuda_is_available()) return;
    model_config config = device_config(model_family::qwen2, 64);
    config.hidden_size = 1024;
    config.intermediate_size = 2816;
    config.heads = 14;
    config.kv_heads = 2;
    config.context = 2048;
    const model_files files = random_model(config, weight_type::bf16);
    const crowd all(config.vocab_size);
    for (const weight_format format : {weight_format::bf16, weight_format::int4}) {
        CAPTURE(std::string(name_of(format)));
        const auto with = batch_invariant_on_cuda(files, crowd::room, format);
        for (unsigned seed = 0; seed < 2; ++seed) {
            const auto together = all.together(*with, seed);
            int different = 0;
            for (std::size_t i = seed; i < together.size(); i += 3) different += together[i] != all.alone(*with, i);
            CHECK(different == 0);
        }
        runner_options usual = crowd::room;
        usual.weights = format;
        const auto without = runner_on_cuda(files, usual);
        const auto beside = all.together(*without, 0);
        int different = 0;
        for (std::size_t i = 0; i < beside.size(); i += 3) different += beside[i] != all.alone(*without, i);
        MESSAGE(different, " of 14 sequences differ in some bit without it");
    }
}

TEST_CASE("On a GPU: an invariant engine's texts are independent of batch and preemption") {
    if (!cuda_is_available()) return;
    served_figures figures;
    for (unsigned seed = 0; seed < 6; ++seed) {
        CAPTURE(seed);
        const model_config config = device_config(static_cast<model_family>(seed % 3), seed % 2 == 0 ? 64 : 128);
        const model_files files = random_model(config, weight_type::bf16, seed);
        const auto with = batch_invariant_on_cuda(files, small_cache);
        check_texts_batch_invariant(*with, config, figures, seed, batches::of_one_kind);
    }
    CHECK(figures.preemptions > 20);
    CHECK(figures.prefix_cache_hit_rate > 0.1);
}

}  // namespace imbrex::engine::test
