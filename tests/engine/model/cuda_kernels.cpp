// The GPU model (bf16, tensor-core kernels) in the host world: tests without a GPU that the kernels get the right
// arguments.
#include <algorithm>
#include <vector>

#include "engine/model/cuda_kernels_on_host.hpp"
#include "engine/model/model_variants.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/model/reference_model.hpp"
#include "engine/model/rounded_weights.hpp"
#include "engine/model/runner_logits.hpp"
#include "engine/support.hpp"
#include "engine/transformers.hpp"

namespace imbrex::engine::test {

namespace {

constexpr double bf16_rounding = 0.05;  // of logits, by distance()

}  // namespace

TEST_CASE("GPU model in the host world: logits within bf16 rounding") {
    for (const variant& which : all_variants()) {
        CAPTURE(std::string(which.name));
        model_config config = config_of(which, 64);
        config.vocab_size = 64;
        const model_files files = random_model(config, weight_type::bf16);
        const std::vector<int> tokens = random_tokens(40, config.vocab_size, 31);
        const rows expected = reference_logits(config, files.weights, tokens);
        const auto with = make_cuda_kernels_runner_on_host(
            files, {.num_kv_blocks = 8, .max_num_batched_tokens = 64, .max_num_seqs = 4});
        for (const std::vector<int>& chunks : {std::vector<int>{40}, {17, 1, 4, 17, 1}}) {
            const rows logits = logits_of_chunks(*with, sequence_in(tokens, {5, 0, 3}), chunks, config.vocab_size);
            CHECK(largest_distance(logits, at_ends(expected, chunks)) < bf16_rounding);
        }
    }
}

TEST_CASE("GPU model in the host world: quantised weights") {
    // Gate and up with a multiple of 64 rows, and sizes that cannot be prepacked.
    for (const int intermediate : {192, 172}) {
        model_config config = small_config(model_family::qwen2);
        config.layers = 2;
        config.hidden_size = 96;
        config.intermediate_size = intermediate;
        config.tie_word_embeddings = false;  // the embedding table is not quantised
        config.head_dim = 64;
        config.vocab_size = 64;
        const model_files files = random_model(config, weight_type::bf16);
        const std::vector<int> tokens = random_tokens(40, config.vocab_size, 33);
        for (const weight_format format : {weight_format::e4m3, weight_format::int8, weight_format::int4}) {
            CAPTURE(std::string(name_of(format)));
            CAPTURE(intermediate);
            const model_files rounded = changed(files, [&](const weight& one, std::vector<float>& values) {
                const bool is_inner = one.name.find("mlp.") != std::string::npos;
                if (one.shape.size() != 2 || one.name == "model.embed_tokens.weight") return;
                if (is_inner && intermediate % 64 != 0) return;
                round_matrix(format, one.rows(), one.row_elements(), values);
            });
            const rows expected = reference_logits(config, rounded.weights, tokens);
            const auto with = make_cuda_kernels_runner_on_host(
                files, {.weights = format, .num_kv_blocks = 8, .max_num_batched_tokens = 64, .max_num_seqs = 4});
            for (const std::vector<int>& chunks : {std::vector<int>{40}, {17, 1, 4, 17, 1}}) {
                const rows logits = logits_of_chunks(*with, sequence_in(tokens, {5, 0, 3}), chunks, config.vocab_size);
                CHECK(largest_distance(logits, at_ends(expected, chunks)) < bf16_rounding);
            }
        }
    }
}

TEST_CASE("GPU model in the host world: several sequences in a batch") {
    model_config config = small_config(model_family::llama);
    config.layers = 2;
    config.head_dim = 64;
    config.vocab_size = 64;
    const model_files files = random_model(config, weight_type::bf16);
    const auto with =
        make_cuda_kernels_runner_on_host(files, {.num_kv_blocks = 16, .max_num_batched_tokens = 64, .max_num_seqs = 4});
    std::vector<std::shared_ptr<sequence>> sequences;
    std::vector<rows> expected;
    int block = 15;
    for (const int length : {1, 17, 36}) {
        std::vector<int> blocks;
        for (int i = 0; i < (length + 19) / 16; ++i) blocks.push_back(block--);
        sequences.push_back(
            sequence_in(random_tokens(length + 4, config.vocab_size, static_cast<unsigned>(length)), blocks));
        expected.push_back(reference_logits(config, files.weights, sequences.back()->tokens));
    }
    // One prompt at a time, then all together, then two, then all again.
    const std::vector<std::vector<int>> steps{{1, 0, 0},   {2, 17, 0},  {2, 17, 36},
                                              {3, 18, 37}, {4, 19, 37}, {5, 20, 38}};
    std::vector<int> done(3);
    for (const std::vector<int>& step : steps) {
        batch work;
        rows wanted;
        for (std::size_t i = 0; i < step.size(); ++i) {
            if (step[i] == done[i]) continue;
            work.entries.push_back({sequences[i], done[i], step[i] - done[i], true});
            wanted.push_back(expected[i][static_cast<std::size_t>(step[i]) - 1]);
        }
        CHECK(largest_distance(run_logits(*with, work, config.vocab_size), wanted) < bf16_rounding);
        done = step;
    }
}

TEST_CASE("GPU model in the host world: as close to transformers as transformers in bf16") {
    for (const auto& folder : transformers_folders()) {
        CAPTURE(folder.string());
        const transformers_model model(folder);
        const int vocabulary = model.files.config.vocab_size, count = static_cast<int>(model.tokens.size());
        const auto sequence = sequence_in(model.tokens, blocks_from(0, (count + 15) / 16));
        const auto with = make_cuda_kernels_runner_on_host(
            model.files, {.num_kv_blocks = 8, .max_num_batched_tokens = 32, .max_num_seqs = 4});
        const rows logits = logits_of_chunks(*with, sequence, std::vector<int>(model.tokens.size(), 1), vocabulary);
        CHECK(largest_distance(logits, model.logits) < 2 * model.bf16_error);
    }
}

}  // namespace imbrex::engine::test
