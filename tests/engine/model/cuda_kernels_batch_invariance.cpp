// Batch invariance of the GPU model in the host world, bit by bit. cuda_runner_batch_invariance.cpp tests it on a GPU.
#include <string>
#include <vector>

#include "engine/model/batch_invariance.hpp"
#include "engine/model/cuda_kernels_on_host.hpp"
#include "engine/model/random_weights.hpp"
#include "engine/support.hpp"

namespace imbrex::engine::test {

namespace {

model_config tile_config(model_family family) {
    model_config config = small_config(family);
    config.layers = 2;
    config.hidden_size = 96;
    config.intermediate_size = 192;
    config.head_dim = 64;
    config.vocab_size = 64;
    return config;
}

runner_options invariant(runner_options options, weight_format format) {
    options.weights = format;
    options.batch_invariant = true;
    return options;
}

}  // namespace

TEST_CASE("Invariant GPU model in the host world: logits independent of the batch") {
    for (const weight_format format :
         {weight_format::bf16, weight_format::e4m3, weight_format::int8, weight_format::int4}) {
        if (few_combinations && (format == weight_format::e4m3 || format == weight_format::int4)) continue;
        CAPTURE(std::string(name_of(format)));
        const auto family = static_cast<model_family>(static_cast<int>(format) % 3);
        CAPTURE(std::string(name_of(family)));
        const model_config config = tile_config(family);
        const model_files files = random_model(config, weight_type::bf16);
        const auto with = make_cuda_kernels_runner_on_host(files, invariant(runner_of_bystanders, format));
        check_logits_batch_invariant(*with, config.vocab_size, batches::of_one_kind);
    }
}

TEST_CASE("Invariant GPU model in the host world: logits independent of the batch with SIMT attention") {
    model_config config = tile_config(model_family::qwen2);
    config.head_dim = 24;
    config.set_windows(19, [](int) { return true; });
    const model_files files = random_model(config, weight_type::bf16);
    const auto with =
        make_cuda_kernels_runner_on_host(files, invariant(runner_of_bystanders, weight_format::as_in_file));
    check_logits_batch_invariant(*with, config.vocab_size, batches::of_one_kind);
}

TEST_CASE("Invariant GPU model in the host world: logits independent of the batch with experts") {
    model_config config = tile_config(model_family::gpt_oss);
    config.experts = {.count = 5, .per_token = 2, .bias = true, .swiglu_limit = 0.75};
    config.intermediate_size = 40;
    config.attention_sinks = true;
    const model_files files = random_model(config, weight_type::bf16);
    const auto with =
        make_cuda_kernels_runner_on_host(files, invariant(runner_of_bystanders, weight_format::as_in_file));
    check_logits_batch_invariant(*with, config.vocab_size, batches::of_one_kind);
}

TEST_CASE("Invariant GPU model in the host world: texts independent of the batch") {
    served_figures figures;
    for (unsigned seed = 0; seed < 2; ++seed) {
        CAPTURE(seed);
        const model_config config = tile_config(static_cast<model_family>(seed));
        const model_files files = random_model(config, weight_type::bf16, seed);
        const auto with = make_cuda_kernels_runner_on_host(files, invariant(small_cache, weight_format::bf16));
        check_texts_batch_invariant(*with, config, figures, seed, batches::of_one_kind);
    }
    CHECK(figures.preemptions > 5);
    CHECK(figures.prefix_cache_hit_rate > 0.1);
}

TEST_CASE("An invariant model rejects a batch with prompt and generated tokens") {
    const model_config config = tile_config(model_family::llama);
    const model_files files = random_model(config, weight_type::bf16);
    const auto with = make_cuda_kernels_runner_on_host(files, invariant(runner_of_bystanders, weight_format::bf16));
    const batch_sequences all(config.vocab_size);
    batch work;
    work.entries.push_back({all.sequences[0], 0, 3, false});
    work.entries.push_back({all.sequences[1], batch_sequences::prompt, 1, true});
    CHECK(error_message_of([&] { with->run(work); }) ==
          "batch: 1 of its 2 entries have tokens that were generated; in an invariant runner's all have, or none");
}

}  // namespace imbrex::engine::test
